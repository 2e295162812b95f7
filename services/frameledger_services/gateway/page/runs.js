/** The runs of a conversation: each time that a model was asked, how long it took, and what became of it. */

import {html, useMemo} from './html.js';
import {contextPath} from './api.js';
import {href, useAddress} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Badge, Clock, Version, seconds, took} from './facts.js';
import {count, number} from './format.js';
import {Run} from './run.js';
import {wordsOfRuns} from './run_words.js';
import {text} from './words.js';

/** The tab. `?run=` is the run that is open. */
export function Runs({id, at, newest, source}) {
  const words = useMemo(() => wordsOfRuns(source.past), [source.past]);
  const open = useAddress().run;
  const {data, problem} = useAnswer(contextPath(id, '/runs'), newest);
  if (data === null) return html`<${Missing} problem=${problem} what="the runs" />`;
  if (data.runs.length === 0) return html`<p class="nothing">No model was called in this conversation.</p>`;
  const slowest = Math.max(...data.runs.map((run) => seconds(run.requested_at, run.closed_at) ?? 0), 0.001);
  return html`<section class="sheet runs" aria-label="Runs">
    <h2 class="hidden">Runs</h2>
    <p class="summary">${summary(data.runs)}</p>
    <div class="wide" role="region" aria-label="Runs, as a table" tabindex="0"><table>
      <caption>Runs</caption>
      <thead><tr>
        <th scope="col">Asked at</th><th scope="col">Became</th><th scope="col" class="said">Said</th><th scope="col">Model</th>
        <th scope="col" class="number">Attempt</th><th scope="col" class="number">First words</th>
        <th scope="col" class="number">How long</th><th scope="col" class="number">Tokens in</th>
        <th scope="col" class="number">Tokens out</th><th scope="col">Request</th>
      </tr></thead>
      <tbody>${data.runs.map((run, index) => html`
        ${isFirstAfter(data.runs, index, at) && html`<tr class="here"><td colspan="10">after version ${at}</td></tr>`}
        <${Line} key=${run.run_id} run=${run} said=${words.get(run.run_id) ?? run.words} slowest=${slowest} isOpen=${run.run_id === open} />
        ${run.run_id === open && html`<tr class="inside"><td colspan="10"><${Run} id=${id} runId=${open} newest=${newest} /></td></tr>`}
      `)}</tbody>
    </table></div>
    <${Legend} />
  </section>`;
}

/** What became of a run: a sign, a tone and words. */
export function became(run) {
  const ended = {tool_calls: 'called functions', length: 'cut at its limit', content_filter: 'stopped by a filter', error: 'ended with an error'};
  switch (run.status) {
    case 'ended': return {tone: run.finish_reason in ended && run.finish_reason !== 'tool_calls' ? 'warn' : 'good', sign: '✓', words: ended[run.finish_reason] ?? 'ended'};
    case 'open': return {tone: 'live', sign: '…', words: 'is answering'};
    case 'requested': return {tone: 'live', sign: '…', words: 'asked for'};
    case 'interrupted': return {tone: 'warn', sign: '✂', words: 'interrupted'};
    case 'replaced': return {tone: 'warn', sign: '⇄', words: 'replaced by another'};
    case 'failed': return {tone: 'bad', sign: '✗', words: 'failed'};
    case 'context_ended': return {tone: 'quiet', sign: '■', words: 'the conversation ended'};
    case 'dropped': return {tone: 'quiet', sign: '–', words: 'dropped'};
    default: return {tone: 'quiet', sign: '·', words: run.status};
  }
}

function Line({run, said, slowest, isOpen}) {
  const {tone, sign, words} = became(run);
  const first = seconds(run.requested_at, run.first_text_at);
  return html`<tr data-run=${run.run_id} class=${isOpen ? 'open' : ''}>
    <th scope="row"><${Version} at=${run.requested_version} />${' '}<${Clock} time=${run.requested_at} /></th>
    <td><a class="opens" href=${href({tab: 'runs', run: isOpen ? null : run.run_id})}
        title=${isOpen ? 'Close it' : 'Its whole output, and what requested it'}>
        <span aria-hidden="true">${isOpen ? '▾' : '▸'}</span>${' '}<${Badge} tone=${tone} sign=${sign}>${words}<//></a></td>
    <td class="said">${run.error ? html`<span class="error">${text(run.error)}</span>` : said && text(said)}</td>
    <td>${run.model ?? ''}</td>
    <td class="number" data-label="attempt">${run.attempt || ''}</td>
    <td class="number" data-label="first words">${took(first)}</td>
    <td class="number long" data-label="took"><${Bar} run=${run} slowest=${slowest} /></td>
    <td class="number" data-label="in">${tokens(run.input_tokens, run)}</td>
    <td class="number" data-label="out">${tokens(run.output_tokens, run)}</td>
    <td>${run.request_sha256 && html`<a href=${href({tab: 'request', run: run.run_id})}
      aria-label=${`Request of the run asked at version ${run.requested_version}`}>request</a>`}</td>
  </tr>`;
}

/** How a run's seconds went by: waiting for a worker, for the first words, and speaking. */
function Bar({run, slowest}) {
  const whole = seconds(run.requested_at, run.closed_at);
  if (whole === null) return null;
  const started = seconds(run.requested_at, run.started_at) ?? whole;
  const first = seconds(run.requested_at, run.first_text_at) ?? whole;
  const x = (secs) => (100 * Math.min(secs, whole)) / slowest;
  return html`<svg class="bar-of-time" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="waited" x="0" y="1" width=${x(started)} height="6" />
      <rect class="thought" x=${x(started)} y="1" width=${Math.max(0, x(first) - x(started))} height="6" />
      <rect class="spoke" x=${x(first)} y="1" width=${Math.max(0, x(whole) - x(first))} height="6" />
    </svg>${' '}${took(whole)}`;
}

function Legend() {
  const of = (kind, words) => html`<li><svg viewBox="0 0 8 8" aria-hidden="true"><rect class=${kind} width="8" height="8" /></svg> ${words}</li>`;
  return html`<ul class="legend">
    ${of('waited', 'until a worker began')}${of('thought', 'until the first words')}${of('spoke', 'until its end')}
  </ul>`;
}

function summary(runs) {
  const firsts = runs.map((run) => seconds(run.requested_at, run.first_text_at)).filter((secs) => secs !== null).sort((a, b) => a - b);
  const sum = (name) => runs.reduce((all, run) => all + (run[name] ?? 0), 0);
  const parts = [count(runs.length, 'run')];
  if (firsts.length > 0) parts.push(`median ${took(firsts[Math.floor((firsts.length - 1) / 2)])} to the first words`);
  parts.push(`${count(sum('input_tokens'), 'token')} in, ${number(sum('output_tokens'))} out`);
  return parts.join(' · ');
}

/** A plus says that the end of the run did not tell, and this is what was known. */
function tokens(known, run) {
  return known === null ? '' : `${number(known)}${run.usage_partial ? '+' : ''}`;
}

function isFirstAfter(runs, index, at) {
  return runs[index].requested_version > at && (index === 0 || runs[index - 1].requested_version <= at);
}
