/**
 * What is being said at a version and is no message yet, and what of an answer was said and not heard: folded from
 * frames, since the context has only what became of it.
 */

import {rowBefore} from './past.js';
import {isRedacted, redaction, text} from './words.js';

/** A response and a turn are searched for in this many frames before a version. */
const FURTHEST = 3_000;

const ANSWER_BEGINS = new Set(['LLMFullResponseStartFrame', 'VisionFullResponseStartFrame']);
const ANSWER_ENDS = new Set(['LLMFullResponseEndFrame', 'VisionFullResponseEndFrame', 'InterruptionFrame', 'EndFrame', 'CancelFrame']);
const TOKENS = new Set(['LLMTextFrame', 'VisionTextFrame']);

/**
 * Returns the answer that is being given at a version; null if none is.
 * @param {import('./loaded_frames.js').LoadedFrames} frames
 * @returns {{text: string, thought: string, since: number, run: string|null}|null}
 */
export function openAnswer(frames, version) {
  const start = lastBefore(frames, version, (frame) => ANSWER_BEGINS.has(frame.type) || ends(frame));
  if (start === null || ends(start)) return null;
  const answer = new Text();
  const thought = new Text();
  for (let at = start.version + 1; at <= version; at += 1) {
    const one = frames.at(at);
    if (one === undefined) return null;
    if (one.outcome !== 'applied') continue;
    if (one.type === 'LLMAssistantPushAggregationFrame') answer.clear();
    else if (one.type === 'LLMThoughtStartFrame' || one.type === 'LLMThoughtEndFrame') thought.clear();
    else if (one.type === 'LLMThoughtTextFrame') thought.add(one.frame, true);
    else if (isText(one)) answer.add(one.frame, TOKENS.has(one.type));
  }
  return {text: answer.joined, thought: thought.joined, since: start.version, run: start.run_id};
}

/**
 * Returns the turn of the user that is open at a version; null if none is. `interim`: words that may still change.
 * @returns {{text: string, interim: string, since: number}|null}
 */
export function openTurn(frames, version) {
  let stops = 0;
  const from = lastBefore(frames, version, (one) => {
    if (one.type === 'UserStoppedSpeakingFrame') stops += 1;
    return stops === 2 || one.type === 'EndFrame' || one.type === 'CancelFrame';
  });
  let turn = null;
  for (let at = (from?.version ?? Math.max(frames.first, version - FURTHEST)) + 1; at <= version; at += 1) {
    const one = frames.at(at);
    if (one !== undefined && one.outcome === 'applied') turn = turned(turn, one);
  }
  return turn === null ? null : {text: turn.text.joined, interim: turn.interim, since: turn.since};
}

function turned(turn, {type, frame, version}) {
  if (type === 'UserStartedSpeakingFrame') {
    return turn?.speaking ? turn : {speaking: true, text: new Text(), interim: '', since: version};
  }
  if (turn === null) return null;
  if (type === 'InterimTranscriptionFrame') turn.interim = text(frame.text);
  if (type === 'TranscriptionFrame') {
    turn.text.add(frame, false);
    turn.interim = '';
    return turn.speaking ? turn : null;
  }
  if (type === 'UserStoppedSpeakingFrame') {
    if ((turn.text.joined !== '' && turn.interim === '') || !turn.speaking) return null;
    turn.speaking = false;
  }
  return turn;
}

const known = new WeakMap();

/**
 * Returns what was said and not heard of a message that an interruption cut; '' if all was heard, or it is not known
 * yet, because frames are not here.
 * @param {import('./past.js').Past} past
 * @param {import('./past.js').Row} row
 */
export function unheard(frames, past, row) {
  if (row.role !== 'assistant' || frames.at(row.valid_from)?.type !== 'InterruptionFrame') return '';
  const heard = row.message?.content;
  if (typeof heard !== 'string') return '';
  if (!known.has(row)) {
    const before = rowBefore(past, row)?.message?.content ?? openAnswer(frames, row.valid_from - 1)?.text;
    if (typeof before !== 'string') return '';
    known.set(row, rest(before.trim(), heard));
  }
  return known.get(row);
}

function rest(spoken, heard) {
  if (spoken.startsWith(heard)) return spoken.slice(heard.length).trim();
  return spoken === heard ? '' : spoken;
}

function ends(frame) {
  return ANSWER_ENDS.has(frame.type) || (frame.type === 'ErrorFrame' && frame.frame.fatal === true);
}

function isText({type, frame}) {
  return (TOKENS.has(type) || type === 'TextFrame') && frame.append_to_context !== false;
}

function lastBefore(frames, version, wanted) {
  for (let at = version; at > frames.first && at > version - FURTHEST; at -= 1) {
    const one = frames.at(at);
    if (one === undefined) return null;
    if (one.outcome === 'applied' && wanted(one)) return one;
  }
  return null;
}

/** Pieces as the fold joins them: tokens bring their spaces, words get one where neither side has any. */
class Text {
  joined = '';
  #exact = true;
  #hidden = 0;

  add({text: piece, includes_inter_frame_spaces: brings}, isToken) {
    if (isRedacted(piece)) {
      this.#hidden += piece.bytes;
      this.joined = redaction({bytes: this.#hidden});
    }
    if (typeof piece !== 'string' || piece === '') return;
    const exact = isToken || brings === true;
    const meets = this.joined === '' || (exact && this.#exact) || /\s$/.test(this.joined) || /^\s/.test(piece);
    this.joined += meets ? piece : ` ${piece}`;
    this.#exact = exact;
  }

  clear() {
    this.joined = '';
    this.#hidden = 0;
  }
}
