/** Which frames made a difference between two versions, and what stayed the same: from the conversation's past. */

import {eraAt, messagesAt} from './past.js';

/**
 * Returns the frames by which a message came, went or changed, in the order in which they did.
 * @param {{past: import('./past.js').Past, frames: {at: (version: number) => object | undefined}}} source
 */
export function byWhom(source, change, from, to) {
  const [early, late] = [Math.min(from, to), Math.max(from, to)];
  const rows = (source.past.rows.get(change.era) ?? []).filter((row) => row.position === change.position);
  const versions = new Set();
  for (const {valid_from: began, valid_to: ended} of rows) {
    if (began > early && began <= late) versions.add(began);
    if (ended > early && ended <= late) versions.add(ended);
  }
  const [before, after] = [eraAt(source.past, early), eraAt(source.past, late)];
  // What is of another history than the one that holds then came or went with that.
  if (before !== after && versions.size === 0) {
    const replaced = source.past.eras.find((one) => one.valid_from > early && one.valid_from <= late);
    if (replaced !== undefined) versions.add(replaced.valid_from);
  }
  return [...versions].sort((a, b) => a - b).map((version) => source.frames.at(version) ?? {version, type: 'frame'});
}

/** Returns the messages that both versions have, in the form of changes. */
export function unchanged(source, {to, added, replaced}) {
  const changed = new Set([...added, ...replaced].map((one) => `${one.era}.${one.position}`));
  return (messagesAt(source.past, to) ?? [])
    .map((row) => ({change: 'same', era: row.era, position: row.position, place: `${row.era}.${row.position}`, before: row.message, after: row.message}))
    .filter((one) => !changed.has(one.place));
}
