/** What needs a person, over all conversations: waiting and ambiguous calls, parked conversations; and the live workers. */

import {Heading} from './heading.js';
import {html, useEffect, useState} from './html.js';
import {contextPath} from './api.js';
import {href} from './address.js';
import {Missing, Trouble, useAnswer} from './answer.js';
import {useTick, waitingFor} from './attention.js';
import {Call} from './calls.js';
import {Copied, quoted, seconds, took} from './facts.js';
import {count, moment, whole} from './format.js';
import {Working} from './working.js';
import {text} from './words.js';

/** The screen. */
export function Work() {
  const tick = useTick();
  const waiting = useAnswer('/v1/waiting', tick);
  const ofPeople = waitingFor('person', waiting);
  const ofClients = waitingFor('client', waiting);
  const ambiguous = useAnswer('/v1/ambiguous', tick);
  const parked = useAnswer('/v1/parked', tick);
  useEffect(() => {
    document.title = 'What needs a person · Frameledger';
  }, []);
  return html`<main class="work">
    <${Heading}>What needs a person<//>
    <p class="summary" role="status">${summary(ofPeople, ambiguous.data, parked.data)}</p>
    <${Asked} name="Waiting" calls=${ofPeople} problem=${waiting.problem} tick=${tick} none="No call waits for a person."
      why="A function waits for a decision. The conversation may continue meanwhile; the model receives the answer when you send it." />
    <${Asked} name="Ambiguous" calls=${ambiguous.data?.calls} problem=${ambiguous.problem} tick=${tick} none="No call is ambiguous."
      why="A worker died while it ran these, so it is unknown whether they were executed. They are not run again. Find out, then report the result." />
    <${Parked} answer=${parked} />
    <${Asked} name="Waiting for a client" calls=${ofClients} problem=${waiting.problem} tick=${tick} none="No call waits for a client."
      why="Functions of client programs. The client answers them when it returns; no person has to." />
    <${Working} tick=${tick} />
  </main>`;
}

/** Calls of one kind. One that is open stays until it is closed, also when it needs nobody any more. */
function Asked({name, calls, problem, tick, none, why}) {
  const [open, setOpen] = useState(new Map());
  const listed = new Set(calls?.map(keyOf));
  const shown = calls && [...calls, ...[...open.values()].filter((one) => !listed.has(keyOf(one)))];
  const turn = (call, isOpen) => setOpen((before) => {
    const next = new Map(before);
    if (isOpen) next.set(keyOf(call), call);
    else next.delete(keyOf(call));
    return next;
  });
  return html`<section aria-label=${name}>
    <h2>${name} ${calls?.length > 0 && html`<span class="count">${calls.length}</span>`}</h2>
    ${calls !== undefined && problem !== null && html`<${Trouble} problem=${problem} />`}
    ${calls === undefined
      ? html`<${Missing} problem=${problem} what="the calls" />`
      : shown.length === 0
        ? html`<p class="nothing">${none}</p>`
        : html`<p class="faint">${why}</p>
          <ul class="cards">${shown.map((call) => html`<li key=${keyOf(call)}><${Item} call=${call} isOpen=${open.has(keyOf(call))} turn=${turn} tick=${tick} /></li>`)}</ul>`}
  </section>`;
}

/** A call in a line; opened, all of it, with the form. */
function Item({call, isOpen, turn, tick}) {
  const since = seconds(call.since, new Date().toISOString());
  return html`<div class="item"><details onToggle=${(event) => event.target === event.currentTarget && turn(call, event.target.open)}>
    <summary><strong>${call.function_name}</strong>
      <span>${call.waiting_for !== null && html`waits for <bdi>${text(call.waiting_for)}</bdi> `}in <span class="id">${call.context_id}</span></span>
      <time datetime=${call.since} title=${whole(call.since)}>for ${took(since)}</time>
      ${call.waiting_deadline && html`<${Deadline} time=${call.waiting_deadline} />`}
    </summary>
    ${isOpen && html`<${Opened} call=${call} tick=${tick} />`}
  </details>
  <a href=${href({context: call.context_id, tab: 'calls', call: call.tool_call_id})} aria-label=${`Conversation ${call.context_id}`}>conversation</a></div>`;
}

function Opened({call, tick}) {
  const {data, problem} = useAnswer(contextPath(call.context_id, '/calls'), tick);
  const found = data?.calls.find((one) => one.requested_version === call.requested_version && one.ordinal === call.ordinal);
  if (found === undefined) return html`<${Missing} problem=${problem} what="the call" />`;
  return html`<${Call} id=${call.context_id} call=${found} />`;
}

function Deadline({time}) {
  const left = seconds(new Date().toISOString(), time);
  return left < 0
    ? html`<span class="badge bad"><span aria-hidden="true">!</span> overdue</span>`
    : html`<span class="badge warn"><span aria-hidden="true">◷</span> <time datetime=${time}>until ${moment(time)}</time></span>`;
}

function Parked({answer}) {
  const parked = answer.data?.parked;
  return html`<section aria-label="Parked">
    <h2>Parked ${parked?.length > 0 && html`<span class="count">${parked.length}</span>`}</h2>
    ${parked !== undefined && answer.problem !== null && html`<${Trouble} problem=${answer.problem} />`}
    ${parked === undefined
      ? html`<${Missing} problem=${answer.problem} what="what is parked" />`
      : parked.length === 0
        ? html`<p class="nothing">No conversation is parked.</p>`
        : html`<p class="faint">A frame of each could not be folded, so later frames are stored and not applied. Fix the cause, then unpark.</p>
          <ul class="cards">${parked.map((one) => html`<li class="card" key=${one.context_id}>
            <p><a href=${href({context: one.context_id, at: one.since})}><strong>${one.context_id}</strong></a>${' '}since version ${one.since}, ${count(one.waiting, 'frame')}, <time datetime=${one.parked_at}>${moment(one.parked_at)}</time></p>
            <p class="error">${text(one.error)}</p>
            <${Copied} label="the command that unparks">${`frameledger unpark ${quoted(one.context_id)}`}<//></li>`)}</ul>`}
  </section>`;
}

function summary(waiting, ambiguous, parked) {
  if (waiting === undefined || ambiguous === null || parked === null) return 'Reading …';
  const counts = [
    [waiting.length, 'waiting'], [ambiguous.calls.length, 'ambiguous'], [parked.parked.length, 'parked'],
  ].filter(([number]) => number > 0);
  return counts.length === 0 ? 'Nothing needs a person now.' : counts.map(([number, word]) => `${number} ${word}`).join(' · ');
}

function keyOf(call) {
  return `${call.context_id} ${call.requested_version} ${call.ordinal}`;
}
