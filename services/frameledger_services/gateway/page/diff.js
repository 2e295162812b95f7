/** What differs between two versions: messages word by word, tools, settings, and the frames that did it. */

import {html, useEffect, useMemo, useState} from './html.js';
import {contextPath} from './api.js';
import {go, href, useAddress} from './address.js';
import {Missing, useAnswer} from './answer.js';
import {Comparison, messagesOf, roleOfChange, termsOf, told} from './changes.js';
import {Frame, Version} from './facts.js';
import {count} from './format.js';
import {isRedacted, text} from './words.js';
import {byWhom, unchanged} from './diff_frames.js';

const SIGNS = {added: ['+', 'added'], removed: ['−', 'removed'], replaced: ['~', 'changed']};

/** The tab: `?from=` and `?to=`, and `?only=0` shows also what stayed. */
export function Diff({id, at, newest, source}) {
  const {from: asked, to: wanted, only} = useAddress();
  const first = source.frames.first;
  const within = (version) => Math.min(Math.max(version, first), newest);
  const to = within(wanted ?? at);
  const from = within(asked ?? (wanted === null && at > first ? at - 1 : first));
  // Which frames did it is said by the rows of the histories at both ends.
  useEffect(() => {
    source.ensure(from);
    source.ensure(to);
  }, [source, from, to]);
  const {data, problem} = useAnswer(contextPath(id, `/diff?from=${from}&to=${to}`));
  return html`<section class="sheet difference" aria-label="Diff">
    <h2 class="hidden">What differs between two versions</h2>
    <${Ends} from=${from} to=${to} first=${first} newest=${newest} />
    <p><label class="check"><input type="checkbox" checked=${only !== '0'}
      onChange=${(event) => go({only: event.target.checked ? null : '0'}, {replace: true})} /> Only what changed</label></p>
    ${data === null
      ? html`<${Missing} problem=${problem} what="both versions" />`
      : html`<${Found} found=${data} source=${source} from=${from} to=${to} isAll=${only === '0'} />`}
  </section>`;
}

/** The two versions, each as a number and as a slider. */
function Ends({from, to, first, newest}) {
  return html`<div class="ends">
    <${End} name="From version" value=${from} first=${first} newest=${newest} set=${(version) => go({from: version, to}, {replace: true})} />
    <${End} name="To version" value=${to} first=${first} newest=${newest} set=${(version) => go({from, to: version}, {replace: true})} />
    <a class="turn" href=${href({from: to, to: from})}>Swap</a>
  </div>`;
}

function End({name, value, first, newest, set}) {
  // What is being typed, which stays while frames come; null once it is taken, or left.
  const [draft, setDraft] = useState(null);
  const changed = (event) => event.target.value !== '' && set(Number(event.target.value));
  const taken = (event) => {
    changed(event);
    setDraft(null);
  };
  return html`<div class="end">
    <label>${name} <input type="number" min=${first} max=${newest} value=${draft ?? value}
      onInput=${(event) => setDraft(event.target.value)} onChange=${taken} onBlur=${() => setDraft(null)} /></label>
    <input type="range" min=${first} max=${newest} value=${value} onInput=${changed} aria-label=${`${name}, slider`}
      aria-valuetext=${`version ${value} of ${newest}`} />
  </div>`;
}

function Found({found, source, from, to, isAll}) {
  // Compared once: it is drawn again with every frame that comes.
  const {messages, terms} = useMemo(() => compared(found), [found]);
  const shown = isAll ? [...messages, ...unchanged(source, found)].sort((a, b) => a.era - b.era || a.position - b.position) : messages;
  if (messages.length + terms.length === 0 && !isAll) {
    return html`<p class="nothing" role="status">The context is the same at both versions.</p>`;
  }
  return html`
    <p class="summary" role="status">${summary(messages, terms)}${found.eras[0] !== found.eras[1] && ' · the history was replaced in between'}</p>
    <ol class="changes">${shown.map((one) => html`<${Change} key=${one.place} one=${one} source=${source} from=${from} to=${to} />`)}</ol>
    ${terms.length > 0 && html`<h3>Tools and settings</h3>
      <ul class="changes">${terms.map((one) => html`<${Term} one=${one} />`)}</ul>`}`;
}

/** Returns the messages, the tools and the settings that differ, each with the pieces of its text. */
function compared(found) {
  const comparison = new Comparison();
  return {
    messages: messagesOf(found).map((one) => ({...one, pieces: piecesOfMessage(one, comparison)})),
    terms: termsOf(found.terms).map((one) => ({...one, pieces: piecesOfTerm(one, comparison)})),
  };
}

function piecesOfMessage({before, after}, comparison) {
  if (before === null) return [{text: told(after), change: 'come'}];
  if (after === null) return [{text: told(before), change: 'gone'}];
  return comparison.words(told(before), told(after));
}

function piecesOfTerm({kind, before, after}, comparison) {
  const short = (value) => {
    if (kind === 'tool') return text(value?.function?.description ?? value, 2);
    return isRedacted(value) ? text(value) : JSON.stringify(value);
  };
  if (before === undefined) return [{text: short(after), change: 'come'}];
  if (after === undefined) return [{text: short(before), change: 'gone'}];
  const isSame = short(before) === short(after);
  return isSame ? comparison.words(text(before, 2), text(after, 2)) : comparison.words(short(before), short(after));
}

function Change({one, source, from, to}) {
  const [sign, verb] = SIGNS[one.change] ?? [' ', 'stayed'];
  const frames = one.change === 'same' ? [] : byWhom(source, one, from, to);
  return html`<li data-change=${one.change} data-place=${one.place} class=${one.change}>
    <span class="sign" aria-hidden="true">${sign}</span>
    <div class="what">
      <span class="role">${roleOfChange(one)}</span> <span class="verb">${verb}</span>
      <p class="words">${one.change === 'same' ? told(one.after) : one.pieces.map(drawn)}</p>
      <p class="faint by">${frames.map((frame, index) => html`${index > 0 && ', '}<${Frame} frame=${frame} />`)}</p>
    </div>
    <a class="reason" href=${href({tab: 'why', message: one.place, at: one.after === null ? from : to, from: null, to: null, only: null})}>why</a>
  </li>`;
}

function drawn({text: said, change}) {
  switch (change) {
    case 'gone': return html`<del>${said}</del>`;
    case 'come': return html`<ins>${said}</ins>`;
    default: return said;
  }
}

function Term({one}) {
  const change = one.before === undefined ? 'added' : one.after === undefined ? 'removed' : 'replaced';
  const [sign, verb] = SIGNS[change];
  return html`<li class=${change} data-setting=${one.kind === 'setting' ? one.name : undefined} data-tool=${one.kind === 'tool' ? one.name : undefined}>
    <span class="sign" aria-hidden="true">${sign}</span>
    <div class="what"><span class="role">${one.kind}</span> <code>${one.name}</code> <span class="verb">${verb}</span>
      <p class="words">${one.pieces.map(drawn)}</p></div>
  </li>`;
}

function summary(messages, terms) {
  const of = (change) => messages.filter((one) => one.change === change).length;
  const counts = [
    [of('added'), 'added'], [of('removed'), 'removed'], [of('replaced'), 'changed'],
  ].filter(([number]) => number > 0).map(([number, verb], index) => `${index === 0 ? count(number, 'message') : number} ${verb}`);
  if (terms.length > 0) counts.push(`${terms.length} of tools and settings changed`);
  return counts.join(', ');
}
