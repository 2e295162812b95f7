/** The calls of functions: what was asked of each, what came of it, and what a person has to say. */

import {html, useEffect, useRef, useState} from './html.js';
import {contextPath} from './api.js';
import {href, useAddress} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Badge, Clock, Facts, Value, Version, seconds, took} from './facts.js';
import {count, moment, whole} from './format.js';
import {Settle, Settled} from './settle.js';
import {isOfClient, text} from './words.js';

/** The tab. `?call=` is a call that is looked for. */
export function Calls({id, at, newest, source}) {
  const wanted = useAddress().call;
  const {data, problem} = useAnswer(contextPath(id, '/calls'), newest);
  if (data === null) return html`<${Missing} problem=${problem} what="the calls" />`;
  if (data.calls.length === 0) return html`<p class="nothing">No function was called in this conversation.</p>`;
  return html`<section class="sheet calls" aria-label="Calls">
    <h2 class="hidden">Calls</h2>
    <p class="summary">${summary(data.calls)}</p>
    <ol class="cards">${data.calls.map((call, index) => html`
      ${isFirstAfter(data.calls, index, at) && html`<li key="here" class="here">after version ${at}</li>`}
      <li key=${`${call.requested_version}.${call.ordinal}`}><${Call} id=${id} call=${call} decided=${decisionOn(call, source)} isWanted=${call.tool_call_id === wanted} /></li>`)}
    </ol>
  </section>`;
}

/** Whether a call waits for the client that brought its function: nobody else has to answer it, and anybody may. */
function waitsForClient(call) {
  return call.status === 'waiting' && isOfClient(call);
}

/** Whether a person may say something of a call. */
function maySettle(call) {
  return call.status === 'waiting' || (call.status === 'ambiguous' && call.resolved_version === null);
}

/** Whether a person has to say something of a call. */
function needsPerson(call) {
  return maySettle(call) && !waitsForClient(call);
}

/** One call. */
export function Call({id, call, decided, isWanted}) {
  const place = useRef(null);
  const [settled, setSettled] = useState(null);
  // A form that somebody writes in stays, also when somebody else is quicker.
  const asked = useRef(false);
  asked.current ||= maySettle(call);
  useEffect(() => {
    if (isWanted) place.current.scrollIntoView({block: 'start'});
  }, [isWanted]);
  const {tone, sign, words} = became(call);
  const key = `${call.requested_version}-${call.ordinal}`;
  return html`<article ref=${place} class=${`card ${needsPerson(call) ? 'waits' : ''} ${isWanted ? 'wanted' : ''}`}
      data-call=${call.tool_call_id} data-version=${call.requested_version} aria-labelledby=${`call-${key}`}>
    <header>
      <h3 id=${`call-${key}`}>${call.function_name}</h3>
      <${Badge} tone=${tone} sign=${sign}>${words}<//>
      <span class="faint"><${Clock} time=${call.requested_at} /> · version <${Version} of=${id} at=${call.requested_version} />
        ${call.settled_version !== null && html` to <${Version} of=${id} at=${call.settled_version} />`}
        ${call.resolved_version !== null && html`, decided at <${Version} of=${id} at=${call.resolved_version} />`}
        ${duration(call)}</span>
    </header>
    <div class="both">
      <div><h4>Arguments</h4><${Value} value=${call.arguments} /></div>
      ${call.result !== null && html`<div><h4>Result</h4><${Value} value=${call.result} /></div>`}
      ${decided !== undefined && html`<div><h4>Reported by a person</h4><${Value} value=${decided} /></div>`}
    </div>
    ${settled !== null && html`<${Settled} id=${id} answer=${settled} />`}
    ${maySettle(call) && settled === null && html`<${Reason} call=${call} />`}
    ${asked.current && settled === null && html`<${Settle} id=${id} call=${call} isOver=${!maySettle(call)} done=${setSettled} />`}
    <details><summary>More of this call</summary><${Facts} rows=${facts(id, call)} /></details>
  </article>`;
}

/** Why a person may say something of a call. */
function Reason({call}) {
  if (call.status === 'waiting') {
    return html`<p class="why">Waits for <strong>${call.waiting_for === null ? 'a person' : text(call.waiting_for)}</strong>${call.waiting_deadline && html`,
      until <time datetime=${call.waiting_deadline} title=${whole(call.waiting_deadline)}>${moment(call.waiting_deadline)}</time>`}.</p>`;
  }
  return html`<p class="why"><strong>It is unknown whether this happened.</strong> It started, and its outcome was never reported. It is
    not run again, because it must not happen twice. Find out${
      call.idempotency_key && html`, for example by its idempotency key <code>${call.idempotency_key}</code>`}, and report the outcome.</p>`;
}

/** The result that a person reported for an ambiguous call; its row keeps the one with which it was settled. */
function decisionOn(call, source) {
  return call.resolved_version === null ? undefined : source.frames.at(call.resolved_version)?.frame?.result;
}

function became(call) {
  switch (call.status) {
    case 'done': return {tone: 'good', sign: '✓', words: 'done'};
    case 'failed': return {tone: 'bad', sign: '✗', words: 'failed'};
    case 'waiting': return waitsForClient(call)
      ? {tone: 'quiet', sign: '◷', words: 'waits for the client'}
      : {tone: 'warn', sign: '◷', words: 'waits for a person'};
    case 'ambiguous': return call.resolved_version === null
      ? {tone: 'bad', sign: '?', words: 'ambiguous'}
      : {tone: 'good', sign: '?', words: 'was ambiguous, decided by a person'};
    case 'running': return {tone: 'live', sign: '…', words: 'runs'};
    case 'dispatched': return {tone: 'live', sign: '…', words: 'sent to a worker'};
    case 'announced': return {tone: 'live', sign: '…', words: 'announced'};
    default: return {tone: 'quiet', sign: '–', words: call.status};
  }
}

function duration(call) {
  const secs = seconds(call.started_at ?? call.dispatched_at, call.settled_at);
  return secs === null ? '' : ` · took ${took(secs)}`;
}

function facts(id, call) {
  const yes = (value) => (value === null ? null : value ? 'yes' : 'no');
  return [
    ['Call', html`<code>${call.tool_call_id}</code>`],
    ['Idempotency key', call.idempotency_key && html`<code>${call.idempotency_key}</code>`],
    ['Asked for by', call.run_id && html`<a href=${href({context: id, tab: 'runs', run: call.run_id, call: null})}>its run</a>`],
    ['Worker', call.worker && html`<code>${text(call.worker)}</code>`],
    ['Attempt', call.attempt || null],
    ['Committed', call.dispatched_version !== null && html`<${Version} of=${id} at=${call.dispatched_version} />`],
    ['Started', call.started_version !== null && html`<${Version} of=${id} at=${call.started_version} />`],
    ['Interrupted', call.interrupted_version !== null && html`<${Version} of=${id} at=${call.interrupted_version} />`],
    ['Progress', call.progress_count > 0 && count(call.progress_count, 'report')],
    ['The conversation waits', yes(call.synchronous)],
    ['Safe to run twice', yes(call.safe_to_retry)],
    ['Our own tool', call.builtin && 'yes'],
  ];
}

function summary(calls) {
  const waiting = calls.filter(needsPerson).length;
  const failed = calls.filter((call) => call.status === 'failed').length;
  return [
    count(calls.length, 'call'),
    waiting > 0 && `${waiting} ${waiting === 1 ? 'needs' : 'need'} a person`,
    failed > 0 && `${failed} failed`,
  ].filter(Boolean).join(' · ');
}

function isFirstAfter(calls, index, at) {
  return calls[index].requested_version > at && (index === 0 || calls[index - 1].requested_version <= at);
}
