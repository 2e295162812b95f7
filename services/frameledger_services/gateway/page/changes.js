/** What differs between two versions, put so that it can be shown. Pure functions over an answer of `/diff`. */

import {diffWordsWithSpace, wordsWithSpaceDiff} from './vendor/diff/diff/word.js';
import {isRedacted, parts, speakerOf, text} from './words.js';

/** Longer texts are not compared: to take them apart into words holds the page up, too. */
const MAX_CHARACTERS = 20_000;
/** What the comparisons of a Diff may cost together, in words times edits: about half a second, for
 * which the page stands still. */
const BUDGET = 12_000_000;

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

/** Compares texts word by word, as long as all of its comparisons together do not cost too much. */
export class Comparison {
  #left = BUDGET;

  /**
   * Returns two texts as pieces: what both have, what only the first has, and what only the second has. Of texts that
   * differ too much, all of the first and all of the second.
   * @returns {{text: string, change: 'same'|'gone'|'come'}[]}
   */
  words(before, after) {
    if (before === after) return [{text: before, change: 'same'}];
    return this.#compared(before, after) ?? [{text: before, change: 'gone'}, {text: after, change: 'come'}];
  }

  #compared(before, after) {
    if (before.length + after.length > MAX_CHARACTERS) return undefined;
    // In Chinese and Japanese each character is a word.
    const size = wordCount(before) + wordCount(after);
    // Half of what is left: a text that was written anew does not take it all from those behind it.
    const maxEditLength = Math.floor(this.#left / 2 / size);
    const found = diffWordsWithSpace(before, after, {maxEditLength});
    const edits = found?.reduce((sum, {added, removed, count}) => sum + (added || removed ? count : 0), 0);
    this.#left -= size * (edits ?? maxEditLength);
    return found?.map(({value, added, removed}) => ({text: value, change: added ? 'come' : removed ? 'gone' : 'same'}));
  }
}

function wordCount(text) {
  return wordsWithSpaceDiff.tokenize(text).length;
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
 * Returns what differs in tools and settings, by name. A tool, a setting of the model, and a limit, is one of its own.
 * @returns {{kind: 'tool'|'setting', name: string, before: any, after: any}[]} undefined where there was or is none
 */
export function termsOf(terms) {
  return Object.entries(terms).flatMap(([name, {before, after}]) => {
    if (isRedacted(before) || isRedacted(after)) return [{kind: 'setting', name, before, after}];
    if (name === 'tools') return differing('tool', byName(before), byName(after));
    if (name === 'settings' || name === 'limits') return differing('setting', entriesOf(before), entriesOf(after));
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
