/** What differs between two versions, put so that it can be shown. Pure functions over an answer of `/diff`. */

import {diffWordsWithSpace} from './vendor/diff/diff/word.js';
import {isRedacted, parts, speakerOf, text} from './words.js';

/** Beyond so many characters a comparison word by word would hold the page up. */
const MOST = 20_000;

/**
 * Returns the messages that differ, in the order of their places.
 * @returns {{change: 'added'|'removed'|'replaced', place: string, before: object|null, after: object|null}[]}
 */
export function messagesOf({added, removed, replaced}) {
  return [
    ...removed.map((one) => entry('removed', one, one.message, null)),
    ...replaced.map((one) => entry('replaced', one, one.before, one.after)),
    ...added.map((one) => entry('added', one, null, one.message)),
  ].sort((a, b) => a.era - b.era || a.position - b.position);
}

/**
 * Returns two texts as pieces: what both have, what only the first has, and what only the second has.
 * @returns {{text: string, change: 'same'|'gone'|'come'}[]}
 */
export function words(before, after) {
  if (before.length + after.length > MOST) return [{text: before, change: 'gone'}, {text: after, change: 'come'}];
  return diffWordsWithSpace(before, after).map(({value, added, removed}) => ({
    text: value,
    change: added ? 'come' : removed ? 'gone' : 'same',
  }));
}

/** Returns a message as one text: what it says, and which functions it calls. */
export function told(message) {
  const calls = (Array.isArray(message?.tool_calls) ? message.tool_calls : []).map(
    (call) => `${text(call?.function?.name)} ${text(call?.function?.arguments)}`,
  );
  return [...parts(message).map((part) => part.text), ...calls].join('\n');
}

/** Returns who speaks in a message that came, went or changed. */
export function roleOfChange({before, after}) {
  return speakerOf(after ?? before).name;
}

/**
 * Returns what differs in tools and settings, by name. A tool, and a setting of the model, is one of its own.
 * @returns {{kind: 'tool'|'setting', name: string, before: any, after: any}[]} undefined where there was or is none
 */
export function termsOf(terms) {
  return Object.entries(terms).flatMap(([name, {before, after}]) => {
    if (isRedacted(before) || isRedacted(after)) return [{kind: 'setting', name, before, after}];
    if (name === 'tools') return differing('tool', byName(before), byName(after));
    if (name === 'settings') return differing('setting', entriesOf(before), entriesOf(after));
    return [{kind: 'setting', name, before: before ?? undefined, after: after ?? undefined}];
  });
}

function entry(change, {era, position}, before, after) {
  return {change, era, position, place: `${era}.${position}`, before, after};
}

function differing(kind, before, after) {
  const names = [...new Set([...before.keys(), ...after.keys()])];
  return names
    .map((name) => ({kind, name, before: before.get(name), after: after.get(name)}))
    .filter((one) => JSON.stringify(one.before) !== JSON.stringify(one.after));
}

function byName(tools) {
  return new Map((Array.isArray(tools) ? tools : []).map((tool) => [text(tool?.function?.name ?? tool?.name ?? tool), tool]));
}

function entriesOf(settings) {
  return new Map(Object.entries(settings ?? {}));
}
