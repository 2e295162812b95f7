/** What each run said, as the conversation kept it. */

import {parts} from './words.js';

/** Characters of a run that are shown in a list. */
const MAX_CHARACTERS = 200;

/**
 * Returns, by run, the beginning of what it said, from the messages that are loaded.
 * @param {import('./past.js').Past} past
 * @returns {Map<string, string>}
 */
export function wordsOfRuns(past) {
  const words = new Map();
  for (const rows of past.rows.values()) {
    // As each message was written first: later it may be what was heard of it.
    const firsts = new Map(rows.toReversed().map((row) => [row.position, row]));
    for (const row of [...firsts.values()].reverse()) {
      if (row.run_id === null || row.role !== 'assistant') continue;
      const before = words.get(row.run_id) ?? '';
      if (before.length < MAX_CHARACTERS) words.set(row.run_id, `${before} ${said(row.message)}`.trim().slice(0, MAX_CHARACTERS));
    }
  }
  return words;
}

function said(message) {
  return parts(message).map((part) => part.text).join(' ');
}
