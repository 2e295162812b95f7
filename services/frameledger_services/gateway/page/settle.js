/** A person's word about a call: the answer to one that waits, or what became of one that is ambiguous. */

import {html, useEffect, useRef, useState} from './html.js';
import {contextPath, postJson, session} from './api.js';
import {Trouble} from './answer.js';
import {Copied, Version, quoted} from './facts.js';

/** The form, for whoever may append; for others the command that somebody else may type. */
export function Settle({id, call, isOver, done}) {
  const who = useSession();
  if (who === null) return null;
  if (!who.scopes.includes('append')) return isOver ? null : html`<${NotAllowed} id=${id} call=${call} />`;
  return html`<${Form} id=${id} call=${call} isOver=${isOver} who=${who} done=${done} />`;
}

/**
 * What a text is sent as: JSON where it is some, else the text itself. What is JSON goes out as it was written: parsed
 * and written again, a long number would be another one.
 */
export function meant(written, isPlain) {
  const text = {json: JSON.stringify(written), as: 'text'};
  if (isPlain) return text;
  try {
    JSON.parse(written);
    return {json: written, as: 'JSON'};
  } catch (error) {
    const looksLikeJson = /^\s*[[{"]/.test(written);
    return looksLikeJson ? {as: 'neither', why: error.message} : text;
  }
}

function Form({id, call, isOver, who, done}) {
  const [written, write] = useState('');
  const [isPlain, setPlain] = useState(false);
  const [state, become] = useState({step: 'open'});
  const box = useRef(null);
  const name = `settle-${call.requested_version}-${call.ordinal}`;
  const {json, as, why} = meant(written, isPlain);
  const isEmpty = written.trim() === '';

  const change = (event) => {
    write(event.target.value);
    become({step: 'open'});
  };
  const send = async (event) => {
    event.preventDefault();
    if (isEmpty || as === 'neither') {
      become({step: 'open', wrong: isEmpty ? 'Write something that the model can read.' : `This is not JSON: ${why}. Correct it, or send it as plain text.`});
      box.current.focus();
      return;
    }
    become({step: 'sent'});
    try {
      const path = contextPath(id, `/calls/${encodeURIComponent(call.tool_call_id)}/result`);
      done(await postJson(path, `{"result":${json},"opened_version":${call.requested_version}}`));
    } catch (problem) {
      become({step: 'open', problem});
    }
  };

  if (isOver && state.step === 'open') return html`<${Over} id=${id} call=${call} written=${written} />`;
  return html`<form class="settle" onSubmit=${send} aria-label=${`Settle ${call.function_name}`}>
    <label for=${name}>Result</label>
    <textarea id=${name} ref=${box} rows="3" value=${written} aria-describedby=${`${name}-as`}
      aria-invalid=${state.wrong ? 'true' : undefined} onInput=${change}></textarea>
    <p id=${`${name}-as`} class="faint">The result for the model: text, or JSON such as <code>{"approved": true}</code>.
      ${isEmpty ? '' : html` <strong>${sentAs(as)}</strong>`}</p>
    ${!isEmpty && (as !== 'text' || isPlain) && html`<label class="check"><input type="checkbox" checked=${isPlain}
      onChange=${(event) => setPlain(event.target.checked)} /> Send it as plain text</label>`}
    ${state.wrong && html`<p class="trouble" role="alert">${state.wrong}</p>`}
    ${state.problem && html`<${Refused} problem=${state.problem} />`}
    <p class="act"><button type="submit" disabled=${state.step === 'sent'}>
      ${call.status === 'waiting' ? 'Answer' : 'Say what happened'}</button>
      <span class="faint">Recorded permanently, from <em>${who.name}</em>. Nothing is run again.</span></p>
  </form>`;
}

function sentAs(as) {
  return {text: 'Sent as text.', JSON: 'Sent as JSON.', neither: 'Looks like JSON, but is not valid.'}[as];
}

/** That somebody else settled it, with what was written meanwhile: it may be wanted elsewhere. */
function Over({id, call, written}) {
  if (written.trim() === '') return null;
  return html`<div class="trouble" role="alert"><p><strong>Somebody else was faster.</strong> The call was settled at version${' '}<${Version} of=${id} at=${call.resolved_version ?? call.settled_version} />. This was not sent:</p><pre class="value">${written}</pre></div>`;
}

/** Why the result was not accepted, or who was faster. */
function Refused({problem}) {
  const word = (problem.type ?? '').replace('/problems/', '');
  if (word === 'already-settled') {
    return html`<p class="trouble" role="alert"><strong>Somebody else was faster.</strong> ${problem.detail} Your result was not
      used; the call’s result is the one that came first.</p>`;
  }
  if (word === 'not-visible-yet') {
    return html`<p class="trouble" role="alert"><strong>It is on the log, and not in the tables yet.</strong> There is no need to
      send it again: it will be shown here once a projector has come so far.</p>`;
  }
  return html`<${Trouble} problem=${problem} />`;
}

/** That it was done: what the gateway answered. */
export function Settled({id, answer}) {
  const place = useRef(null);
  useEffect(() => place.current.focus(), []);
  return html`<p class="success" role="status" tabindex="-1" ref=${place}><span aria-hidden="true">✓</span>
    ${answer.outcome === 'parked'
      ? ' It is stored, and the conversation is parked: it counts once that is mended.'
      : html` The call is ${answer.settled}, at version <${Version} of=${id} at=${answer.version} />. ${answer.outcome === 'applied'
        ? 'The model reads it next.'
        : `The model does not read the result (${answer.reason}): the history has no place for it.`}`}
  </p>`;
}

function NotAllowed({id, call}) {
  const command = call.status === 'waiting' ? 'answer' : 'resolve';
  return html`<p class="faint">Your token may read, but not append. A person with that permission can type:</p>
    <${Copied} label="the command">${`frameledger calls ${command} ${quoted(id)} ${quoted(call.tool_call_id)} --result '"…"'`}<//>`;
}

function useSession() {
  const [who, know] = useState(null);
  useEffect(() => {
    session().then(know, () => know({scopes: [], name: ''}));
  }, []);
  return who;
}
