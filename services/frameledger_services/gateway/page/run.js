/** One run: who asked, what it saw, each of its attempts, and what was thrown away. */

import {html} from './html.js';
import {contextPath} from './api.js';
import {href} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Facts, Frame, Version, Versions, seconds, took} from './facts.js';
import {count, number} from './format.js';
import {text} from './words.js';

/** All that is known of a run. */
export function Run({id, runId, newest}) {
  const {data, problem} = useAnswer(contextPath(id, `/runs/${encodeURIComponent(runId)}`), newest);
  if (data === null) return html`<${Missing} problem=${problem} what="the run" />`;
  return html`<section class="run" aria-label="Run">
    <${RunFacts} run=${data} />
    ${data.attempts.map((one) => html`<${Attempt} attempt=${one} isOnly=${data.attempts.length === 1} />`)}
    <${Lost} run=${data} />
  </section>`;
}

/** What a run was, in names and values. */
export function RunFacts({run}) {
  const times = run.times;
  return html`<${Facts} rows=${[
    ['Run', html`<code>${run.run_id}</code>`],
    ['Asked by', run.asked_by && html`<${Frame} frame=${run.asked_by} />`],
    ['It saw', run.saw_version !== null && html`<${Version} at=${run.saw_version}>version ${run.saw_version}<//>`],
    ['Model', [run.model, run.provider].filter(Boolean).join(' of ')],
    ['Worker', run.worker && html`<code>${text(run.worker)}</code>`],
    ['Began', later(times.requested_at, times.started_at)],
    ['First words', later(times.requested_at, times.first_text_at)],
    ['Closed', later(times.requested_at, times.closed_at)],
    ['Tokens', usage(run.usage)],
    ['Request', run.request_sha256 && html`<a href=${href({tab: 'request', run: run.run_id})}>as it was sent</a>${' '}<code class="hash">sha256 ${text(run.request_sha256)}</code>`],
    ['Ended by', run.closed_by && html`<${Frame} frame=${run.closed_by} />`],
    ['Error', run.error && text(run.error)],
  ]} />`;
}

/** What an attempt said, all of it, whether it was heard or not. */
function Attempt({attempt, isOnly}) {
  return html`<article class=${attempt.superseded ? 'attempt superseded' : 'attempt'}>
    <h3>${isOnly ? 'It said' : `Attempt ${attempt.attempt}`}${' '}<small>
      ${attempt.superseded && 'superseded, nothing of it was kept · '}${count(attempt.frames, 'frame')},${' '}<${Versions} from=${attempt.from} to=${attempt.to} /></small></h3>
    ${attempt.text ? html`<p class="words">${text(attempt.text)}</p>` : html`<p class="faint">No words.</p>`}
  </article>`;
}

/** Frames of a run that came too late, or from a worker that had lost it. */
export function Lost({run}) {
  if (run.ignored.length === 0) return null;
  return html`<div class="lost"><h3>Ignored</h3><ul>${run.ignored.map((one) => html`<li>
    <${Frame} frame=${one.frame} />: <em>${one.frame.reason}</em>${one.text && html` “<bdi>${text(one.text)}</bdi>”`}</li>`)}</ul></div>`;
}

/** Tokens of a run in words. */
export function usage(used) {
  const names = {input_tokens: 'in', output_tokens: 'out', cache_read_tokens: 'read from a cache', cache_write_tokens: 'written to a cache', reasoning_tokens: 'of thoughts'};
  const counts = Object.keys(names).filter((name) => used[name] !== null).map((name) => `${number(used[name])} ${names[name]}`);
  return counts.length === 0 ? '' : counts.join(', ') + (used.partial ? ', as far as is known' : '');
}

const later = (asked, then) => then && `${took(seconds(asked, then))} after it was asked for`;
