/** The request of a run, made again from the log: as messages or as JSON, and whether it is the one that was sent. */

import {html} from './html.js';
import {contextPath, getExactly} from './api.js';
import {go, href, useAddress} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Copied, Copy, Facts, Value, Version, quoted} from './facts.js';
import {clock, count} from './format.js';
import {othersOf, toolsOf, turnsOf} from './provider.js';
import {isRedacted, text} from './words.js';

/** The tab. `?run=` says whose; else it is the newest run that was asked for at the version shown. */
export function Request({id, at, newest}) {
  const {run, json} = useAddress();
  const {data, problem} = useAnswer(contextPath(id, '/runs'), newest);
  if (data === null) return html`<${Missing} problem=${problem} what="the runs" />`;
  const asked = data.runs.filter((one) => one.request_sha256 !== null);
  const shown = run ?? asked.findLast((one) => one.requested_version <= at)?.run_id ?? asked[0]?.run_id;
  if (shown === undefined) return html`<p class="nothing">No run of this conversation recorded its request.</p>`;
  return html`<section class="sheet request" aria-label="Request">
    <h2 class="hidden">Request of a run</h2>
    <div class="options">
      <${Choice} runs=${asked} shown=${shown} />
      <nav aria-label="How it is shown" class="views">
        <a href=${href({json: null})} aria-current=${json ? undefined : 'true'}>Messages</a>
        <a href=${href({json: '1'})} aria-current=${json ? 'true' : undefined}>JSON</a>
      </nav>
    </div>
    <${Made} id=${id} run=${shown} saw=${data.runs.find((one) => one.run_id === shown)?.opened_version} isJson=${Boolean(json)} />
  </section>`;
}

function Choice({runs, shown}) {
  return html`<label>Run <select value=${shown} onChange=${(event) => go({run: event.target.value})}>
    ${runs.every((one) => one.run_id !== shown) && html`<option value=${shown}>${shown}</option>`}
    ${runs.map((one) => html`<option value=${one.run_id}>asked at version ${one.requested_version}, ${clock(one.requested_at)}</option>`)}
  </select></label>`;
}

function Made({id, run, saw, isJson}) {
  const {data, problem} = useAnswer(contextPath(id, `/runs/${encodeURIComponent(run)}/request`), undefined, getExactly);
  if (problem?.type === '/problems/no-such-form') return html`<${Unmade} problem=${problem} saw=${saw} />`;
  if (data === null) return html`<${Missing} problem=${problem} what="the request" />`;
  return html`<${Sameness} made=${data} />
    ${isRedacted(data.request)
      ? html`<p class="withheld">This token sees no text: ${text(data.request)}</p>`
      : isJson
        ? html`<${Json} request=${data.request} />`
        : html`<${Messages} request=${data.request} />`}
    <p class="faint">In a terminal:</p>
    <${Copied} label="the command that prints it">${`frameledger request ${quoted(data.context_id)} ${quoted(data.run_id)}`}<//>`;
}

/** Why a request cannot be made again; what the model was given is known all the same. */
function Unmade({problem, saw}) {
  return html`<p role="status"><strong>This request cannot be rebuilt.</strong> ${problem.detail}</p>
    ${saw > 0 && html`<p>The context that its model was given is that of version <${Version} at=${saw} />.</p>`}`;
}

/** Whether what is made again is byte for byte what was sent. */
function Sameness({made}) {
  return html`<div class=${`verdict small ${made.matches_sha256 ? 'good' : 'bad'}`} data-matches=${String(made.matches_sha256)}>
    <span class="sign" aria-hidden="true">${made.matches_sha256 ? '✓' : '≠'}</span>
    <div><p><strong>${made.matches_sha256
      ? 'Byte for byte what was sent.'
      : 'Not byte for byte what was sent.'}</strong> ${made.matches_sha256
      ? 'Rebuilt from the log, it has the hash that was stored when the run started.'
      : 'Rebuilt from the log by this release, it has another hash than the one that was stored when the run started.'}</p>
      <p class="faint">${made.model} of ${made.provider} · <code class="hash">sha256 ${text(made.sha256)}</code></p></div>
  </div>`;
}

function Messages({request}) {
  const tools = toolsOf(request);
  const turns = turnsOf(request);
  return html`
    <h3>${count(turns.length, 'message')}</h3>
    <ol class="turns">${turns.map((turn) => html`<li data-role=${turn.role}>
      <span class="role">${turn.name}</span>
      <div>${turn.parts.map((part) => html`<${Part} part=${part} />`)}</div></li>`)}
    </ol>
    <h3>${count(tools.length, 'tool')}</h3>
    ${tools.map((tool) => html`<details class="tool"><summary><code>${tool.name}</code> ${text(tool.description)}</summary>
      <${Value} value=${tool.parameters ?? {}} /></details>`)}
    <h3>Settings</h3>
    <${Facts} rows=${othersOf(request).map(([name, value]) => [name, html`<code>${text(value)}</code>`])} />`;
}

function Part({part}) {
  switch (part.kind) {
    case 'words': return html`<p class="words">${part.text}</p>`;
    case 'thought': return html`<p class="words thought"><span class="faint">thinks:</span> ${part.text}</p>`;
    case 'call': return html`<p class="call"><b>${part.name}</b> <code>${part.text}</code></p>`;
    default: return html`<pre class="value">${part.text}</pre>`;
  }
}

function Json({request}) {
  const written = JSON.stringify(request, null, 2);
  return html`<${Copy} label="the request" of=${written} /><pre class="value json">${written}</pre>`;
}
