/** Why a message is there: who asked, which run or call or client it comes from, its frames, and what was thrown away. */

import {html} from './html.js';
import {contextPath} from './api.js';
import {href, useAddress} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Copied, Facts, Frame, Value, Version, Versions, quoted, seconds, took} from './facts.js';
import {count} from './format.js';
import {eraAt, messagesAt, placeOf} from './past.js';
import {usage} from './run.js';
import {became} from './runs.js';
import {Thrown} from './thrown.js';
import {parts, speakerOf, text} from './words.js';

/** The tab: `?message=era.position` at the version shown. */
export function Why({id, at, newest, source}) {
  const {message} = useAddress();
  const isPlace = /^\d{1,9}\.\d{1,9}$/.test(message ?? '');
  const isNowhere = isPlace && isMissing(source.past, message, at);
  const path = isPlace && !isNowhere ? contextPath(id, `/messages/${message}/why?version=${at}`) : null;
  const {data, problem} = useAnswer(path, newest);
  return html`<section class="sheet why" aria-label="Why">
    ${!isPlace
      ? html`<${Pick} source=${source} at=${at} />`
      : data === null
        ? isNowhere || problem?.status === 404
          ? html`<p class="nothing" role="status">No message has the place ${message} in the history at version ${at}.</p>
              <${Pick} source=${source} at=${at} />`
          : html`<${Missing} problem=${problem} what="where it comes from" />`
        : html`<${Explained} id=${id} found=${data} at=${at} />`}
  </section>`;
}

/** Whether it is known, without asking, that the history at a version never had a message of this place. */
function isMissing(past, place, at) {
  const [era, position] = place.split('.').map(Number);
  if (eraAt(past, at) !== era) return true;
  return past.rows.get(era)?.some((row) => row.position === position) === false;
}

/** The messages of a version, each of which leads to its reason. */
function Pick({source, at}) {
  const rows = messagesAt(source.past, at) ?? [];
  if (rows.length === 0) return html`<p class="nothing">The context has no messages at version ${at}.</p>`;
  return html`<h3>Select a message</h3><ol class="pick">${rows.map((row) => html`<li>
    <a href=${href({tab: 'why', message: placeOf(row), at})}><span class="role">${speakerOf(row.message).name}</span>${' '}${parts(row.message).map((part) => part.text).join(' ').slice(0, 120) || 'a call'}</a></li>`)}</ol>`;
}

function Explained({id, found, at}) {
  const readings = found.readings;
  const now = readings.findLast((one) => one.from <= at) ?? readings[0];
  return html`
    <header>
      <h2>Why this message is there</h2>
      <p class="faint">Message ${found.position}${found.era > 1 && ` of history ${found.era}`} at version <${Version} at=${at} />${
        !found.there && ', where it is not in the context'}</p>
    </header>
    <blockquote data-role=${found.role}><span class="role">${speakerOf(now.message).name}</span>
      <p class="words">${now.text === null ? text(now.message) : text(now.text)}</p></blockquote>
    <ol class="chain">
      ${found.from === 'client' && html`<${FromClient} found=${found} />`}
      ${found.run && html`<${FromRun} run=${found.run} found=${found} />`}
      ${found.call && html`<${FromCall} call=${found.call} />`}
      ${readings.map((one, index) => html`<${Reading} one=${one} isFirst=${index === 0} isLast=${index === readings.length - 1} />`)}
    </ol>
    <${Thrown} found=${found} kept=${now.text} />
    <h3>Causes</h3>
    <ol class="causes">${found.causes.map((one) => html`<li><${Frame} frame=${one} /></li>`)}</ol>
    <h3>Continue from here</h3>
    <${Commands} id=${id} found=${found} at=${at} />`;
}

function FromClient({found}) {
  const [first] = found.readings;
  return html`<${Step} name="Said by a client">
    <p><${Frame} frame=${first.began_by} /></p>
    ${(found.heard ?? []).map((one) => html`<p>heard <${Frame} frame=${one.frame} />: “<bdi>${text(one.text)}</bdi>”</p>`)}
  <//>`;
}

function FromRun({run, found}) {
  const {sign, words} = became(run);
  return html`
    ${run.asked_by && html`<${Step} name="Asked by"><p><${Frame} frame=${run.asked_by} /></p><//>`}
    <${Step} name="A model was asked">
      <p><strong>${run.model ?? 'a model'}</strong>${run.provider && ` of ${run.provider}`}${run.attempt > 0 && `, attempt ${run.attempt}`}${' · '}<span aria-hidden="true">${sign}</span> ${words}</p>
      <${Facts} rows=${[
        ['To first words', took(seconds(run.times.requested_at, run.times.first_text_at))],
        ['To its end', took(seconds(run.times.requested_at, run.times.closed_at))],
        ['Tokens', usage(run.usage)],
        ['It saw', run.saw_version !== null && html`<${Version} at=${run.saw_version}>version ${run.saw_version}<//>`],
        ['Run', html`<a href=${href({tab: 'runs', run: run.run_id, message: null})}><code>${run.run_id}</code></a>`],
        ['Error', run.error && text(run.error)],
      ]} />
    <//>
    ${run.request_sha256 && html`<${Step} name="By this request">
      <p><a href=${href({tab: 'request', run: run.run_id, message: null})}>Read it as it was sent</a></p>
      <p><code class="hash">sha256 ${text(run.request_sha256)}</code></p><//>`}
    ${found.streamed?.frames > 0 && html`<${Step} name="Which answered">
      <p>${count(found.streamed.frames, 'frame')} of text, versions <${Versions} from=${found.streamed.from} to=${found.streamed.to} /></p><//>`}`;
}

function FromCall({call}) {
  return html`<${Step} name="A function was called">
    <p><a href=${href({tab: 'calls', call: call.tool_call_id, message: null})}><strong>${call.function_name}</strong></a>${' · '}${call.status}${call.attempt > 1 && `, attempt ${call.attempt}`}${
        call.times.started_at && call.times.settled_at && ` · took ${took(seconds(call.times.started_at, call.times.settled_at))}`}</p>
    <${Value} value=${call.arguments} />
    <ul class="of-call">${call.frames.filter((one) => one.frame.outcome !== 'ignored').map((one) => html`<li><${Frame} frame=${one.frame} /></li>`)}</ul>
  <//>`;
}

/** When the message began to read so, and when it was taken back. */
function Reading({one, isFirst, isLast}) {
  return html`<${Step} name=${isFirst ? 'Written by' : 'Rewritten by'}>
      <p><${Frame} frame=${one.began_by} /></p>
      ${one.text !== null && html`<p class="words reads">${text(one.text)}</p>`}<//>
    ${isLast && one.ended_by && html`<${Step} name="Taken back by"><p><${Frame} frame=${one.ended_by} /></p><//>`}`;
}

function Step({name, children}) {
  return html`<li><h3>${name}</h3>${children}</li>`;
}

function Commands({id, found, at}) {
  const run = found.run;
  return html`
    <${Copied} label="the command that explains it in a terminal">${`frameledger why ${quoted(id)} ${found.position} --at ${at}`}<//>
    ${run?.saw_version && html`<${Copied} label="the command that asks again">${`frameledger rerun ${quoted(id)} --at ${run.saw_version}`}<//>`}
    <${Copied} label="the command that continues from here">${`frameledger fork ${quoted(id)} ${quoted(`${id}-fork`)} --at ${at}`}<//>`;
}
