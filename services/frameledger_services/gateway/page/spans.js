/**
 * What happened when, as stretches between versions: who spoke, runs, calls; and the marks between which one leaps.
 *
 * @typedef {{from: number, to: number|null, kind: string, name: string}} Span  `to` is null while it lasts
 * @typedef {{version: number, kind: 'interruption'|'turn'|'call'|'ambiguous'|'history'|'rewritten'|'mirror'|'error'|'end', name: string}} Mark
 */

import {typeName} from './format.js';
import {isOfClient, text} from './words.js';

const ENDS = new Set(['EndFrame', 'CancelFrame']);
/** With these, calls that were announced may be dispatched: the run's end, and what lets the next one of a queue go on. */
const BEGIN = new Set([
  'LLMFullResponseEndFrame', 'VisionFullResponseEndFrame', 'FunctionCallInProgressFrame', 'FunctionCallResultFrame',
  'FunctionCallCancelFrame',
]);

/**
 * Returns what happened, from the frames that are here, and from the conversation's calls: one that a client answers
 * begins with a frame that does not say so. `began` is the newest version at which one may have begun, null if none may.
 * @param {import('./loaded_frames.js').LoadedFrames} frames
 * @param {object[]} calls
 * @returns {{user: Span[], voice: Span[], runs: Span[], calls: Span[], marks: Mark[], began: number|null}}
 */
export function spansOf(frames, calls) {
  const found = new Spans(calls);
  for (const chunk of frames.chunks) {
    for (const one of chunk) if (one?.outcome === 'applied') found.take(one);
  }
  return {...found.lanes, marks: found.marks, began: found.began};
}

class Spans {
  lanes = {user: [], voice: [], runs: [], calls: []};
  marks = [];
  #open = {user: null, voice: null, runs: null};
  #calls = new Map();
  /** The ids of calls that were announced, and that no frame started. */
  #announced = new Set();
  /** The calls that clients answer, by the version at which they began. */
  #ofClients;
  began = null;

  constructor(calls) {
    this.#ofClients = Map.groupBy(calls.filter(isOfClient), (call) => call.started_version);
  }

  take(one) {
    this.#take(one);
    for (const call of this.#ofClients.get(one.version) ?? []) {
      this.#start(call.tool_call_id, one.version, call.function_name).waits = one.version;
    }
    if (this.#announced.size > 0 && BEGIN.has(one.type)) this.began = one.version;
  }

  #take(one) {
    const {type, version, frame} = one;
    if (type === 'UserStartedSpeakingFrame') this.#turn(version);
    else if (type === 'UserStoppedSpeakingFrame') this.#end('user', version, 'spoke');
    else if (type === 'BotStartedSpeakingFrame') this.#begin('voice', version, 'speaks');
    else if (type === 'BotStoppedSpeakingFrame') this.#end('voice', version, 'spoke');
    else if (type === 'LLMFullResponseStartFrame' || type === 'VisionFullResponseStartFrame') this.#run(one);
    else if (type === 'LLMFullResponseEndFrame' || type === 'VisionFullResponseEndFrame') this.#end('runs', version, 'ended');
    else if (type === 'FunctionCallsStartedFrame') this.#announce(frame);
    else if (type === 'FunctionCallInProgressFrame') this.#call(one);
    else if (type === 'FunctionCallResultFrame' || type === 'FunctionCallCancelFrame') this.#settle(one);
    else if (type === 'InterruptionFrame') this.#interrupt(version);
    else if (type === 'ErrorFrame') this.#error(one);
    else if (ENDS.has(type)) this.#over(one);
    else if (type === 'LLMMessagesUpdateFrame' || type === 'LLMContextFrame') this.#mark(version, 'history', 'new history');
    else if (type === 'LLMMessageRewriteFrame') this.#mark(version, 'rewritten', `message ${text(frame.position)} rewritten`);
    else if (type === 'LLMMirrorFrame') this.#mark(version, 'mirror', 'who keeps the history');
    else if (type === 'LLMMessagesAppendFrame') this.#append(version, frame);
    else if (type === 'TranscriptionFrame' && this.#open.user === null) this.#mark(version, 'turn', 'user');
  }

  #turn(version) {
    if (this.#open.user !== null) return;
    this.#begin('user', version, 'speaks');
    this.#mark(version, 'turn', 'user speaks');
  }

  #append(version, {messages}) {
    if (!Array.isArray(messages) || !messages.some((one) => one?.role === 'user')) return;
    this.lanes.user.push({from: version, to: version, kind: 'wrote', name: 'user wrote'});
    this.#mark(version, 'turn', 'user');
  }

  #run({version, run_id: run, frame}) {
    this.#end('runs', version, 'superseded');
    this.#begin('runs', version, 'answers');
    this.#open.runs.run = run;
    this.#open.runs.name = `${text(frame.model ?? 'run')}${frame.attempt > 1 ? `, attempt ${frame.attempt}` : ''}`;
  }

  #call({version, tool_call_id: id, frame}) {
    const key = id ?? frame.tool_call_id;
    const before = this.#calls.get(key);
    if (before !== undefined) {
      if (frame.waiting) before.waits = version;
      return;
    }
    this.#announced.delete(key);
    this.#start(key, version, frame.function_name);
  }

  #start(key, version, name) {
    const span = {from: version, to: null, kind: 'called', name: text(name), waits: null};
    this.#calls.set(key, span);
    this.lanes.calls.push(span);
    this.#mark(version, 'call', `call ${span.name}`);
    return span;
  }

  #announce({function_calls: calls}) {
    if (!Array.isArray(calls)) return;
    for (const call of calls) this.#announced.add(call?.tool_call_id);
  }

  #settle({version, type, tool_call_id: id, frame}) {
    if (frame.properties?.is_final === false) return;
    const key = id ?? frame.tool_call_id;
    const span = this.#calls.get(key);
    if (span === undefined) return;
    // What resolves an ambiguous call comes after its end.
    span.to ??= version;
    span.kind = type === 'FunctionCallCancelFrame' ? 'cancelled' : frame.settled_as ?? 'done';
    if (span.kind === 'ambiguous') this.#mark(version, 'ambiguous', `call ${span.name}: nobody knows whether it happened`);
    else this.#calls.delete(key);
  }

  #interrupt(version) {
    this.#end('runs', version, 'interrupted');
    this.#mark(version, 'interruption', 'interruption');
  }

  #error({version, frame}) {
    if (frame.fatal === true) this.#end('runs', version, 'failed');
    this.#mark(version, 'error', `error ${text(frame.code ?? '')}`.trim());
  }

  #over({version, type}) {
    for (const lane of ['user', 'voice', 'runs']) this.#end(lane, version, lane === 'runs' ? 'interrupted' : 'spoke');
    for (const span of this.#calls.values()) {
      if (span.to === null) Object.assign(span, {to: version, kind: 'cancelled'});
    }
    this.#calls.clear();
    this.#mark(version, 'end', typeName(type));
  }

  #begin(lane, version, kind) {
    if (this.#open[lane] !== null) return;
    this.#open[lane] = {from: version, to: null, kind, name: lane};
    this.lanes[lane].push(this.#open[lane]);
  }

  #end(lane, version, kind) {
    const span = this.#open[lane];
    if (span === null) return;
    Object.assign(span, {to: version, kind});
    this.#open[lane] = null;
  }

  #mark(version, kind, name) {
    this.marks.push({version, kind, name});
  }
}

/** Returns the version of the mark before, or behind, a version; null if there is none. */
export function leap(marks, version, forward) {
  const found = forward ? marks.find((one) => one.version > version) : marks.findLast((one) => one.version < version);
  return found?.version ?? null;
}
