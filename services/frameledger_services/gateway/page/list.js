/** The list of conversations: looked through, narrowed, and kept as it is now. */

import {go, to, useAddress} from './address.js';
import {Trouble} from './answer.js';
import {count, moment, number, whole} from './format.js';
import {Heading} from './heading.js';
import {html, memo, useEffect, useLayoutEffect, useRef, useState} from './html.js';
import {usePages} from './pages.js';
import {isRedacted, text} from './words.js';

const STATUSES = ['quiet', 'answering', 'calling', 'ended', 'recording', 'parked'];
/** After a key nothing is requested for this many milliseconds, because the user may type more. */
const TYPING = 250;
/** How many conversations one page searches for words or a model, and for a status, as the API documents it. */
const SEARCHED = 1_000;
const SEARCHED_BY_STATUS = 5_000;
/** Characters of a search, and the last day to filter by, as the API takes them. */
const MAX_SEARCHED = 200;
const LAST_DAY = '9999-12-31';

/** @param {{session: {redact: boolean}}} about */
export function List({session}) {
  const address = useAddress();
  const pages = usePages(pathOf(address, session));
  useEffect(() => {
    document.title = 'Conversations · Frameledger';
  }, []);
  const isRefused = pages.problem !== null && pages.list.length === 0 && !pages.busy;
  const rows = pages.shown.reduce((sum, page) => sum + page.rows.length, 0);
  return html`
    <main class="list">
      <header><${Heading}>Conversations<//><${State} pages=${pages} /></header>
      <${Filters} address=${address} session=${session} />
      <div class="scroller">
        <table class="conversations" aria-busy=${pages.busy ? 'true' : 'false'}>
          <caption>Conversations</caption>
          <thead><tr>
            <th scope="col">conversation</th><th scope="col">started</th><th scope="col">last</th><th scope="col">status</th>
            <th scope="col" class="number">frames</th><th scope="col">last words</th>
            <th scope="col" class="number">tokens in / out</th><th scope="col" class="number">calls</th>
            <th scope="col" class="number"><abbr title="interruptions">✂︎</abbr></th>
          </tr></thead>
          ${pages.shown.map(({rows: own}, index) => html`<${Page} key=${index} index=${index} rows=${own} seen=${pages.seen} />`)}
        </table>
      </div>
      ${isRefused && html`<div><${Trouble} problem=${pages.problem} />
        <p class="more"><button type="button" onClick=${pages.again}>Try again</button></p></div>`}
      ${rows === 0 && !pages.busy && !isRefused && html`<p class="empty">${isNarrow(address) ? unmatched(pages, address) : html`<${First} />`}</p>`}
      ${pages.next !== null && html`<p class="more">
        <button type="button" disabled=${pages.busy} onClick=${pages.more}>More</button>
        <span>${count(rows, 'conversation')} so far</span>
      </p>`}
    </main>
  `;
}

/** What somebody does who sees this page for the first time. */
function First() {
  return html`No conversation yet. In a terminal, <code>frameledger chat</code> starts one, and <code>frameledger demo</code> plays
    one. It appears here by itself.`;
}

function State({pages}) {
  const isLive = pages.problem === null;
  return html`<span class=${isLive ? 'state live' : 'state reconnecting'} role="status">
    <span aria-hidden="true">${isLive ? '●' : '◌'}</span> ${isLive ? 'live' : 'not live: asking again'}
  </span>`;
}

function Filters({address, session}) {
  const search = useRef(null);
  const set = (name) => (event) => go({[name]: event.target.value}, {replace: true});
  useEffect(() => {
    if (address.search === undefined) return;
    search.current.focus();
    go({search: null}, {replace: true});
  }, [address.search]);
  // With the field and not after it: a key that is pressed as soon as the field is seen is meant for it.
  useLayoutEffect(() => {
    const listener = (event) => {
      if (event.key !== '/' || event.target.matches('input, select, textarea')) return;
      event.preventDefault();
      search.current.select();
    };
    document.addEventListener('keydown', listener);
    return () => document.removeEventListener('keydown', listener);
  }, []);
  return html`
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Search <${Typed} input=${search} type="search" name="q" maxlength=${MAX_SEARCHED} value=${address.q ?? ''}
        placeholder=${session.redact ? 'beginning of an id' : 'ids and words (/)'} /></label>
      <label>Status <select value=${address.status ?? ''} onChange=${set('status')}>
        <option value="">any</option>${STATUSES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select></label>
      <label>Model <${Typed} name="model" value=${address.model ?? ''} /></label>
      <label>Since <input type="date" max=${LAST_DAY} value=${address.since ?? ''} onChange=${set('since')} /></label>
      <label>Order <select value=${address.order ?? ''} onChange=${set('order')}>
        <option value="">newest</option><option value="active">last active, of the newest 1,000</option>
      </select></label>
      <label><input type="checkbox" checked=${address.experiments === '1'}
        onChange=${(event) => go({experiments: event.target.checked ? '1' : null}, {replace: true})} /> experiments</label>
    </form>
  `;
}

/** A field whose text goes into the address once nobody types any more; until then the list may be drawn many times. */
function Typed({name, value, input, ...also}) {
  const [draft, setDraft] = useState(value);
  const inAddress = useRef(value);
  const later = useRef(null);
  const type = (event) => {
    const {value: now} = event.target;
    setDraft(now);
    clearTimeout(later.current);
    later.current = setTimeout(() => {
      inAddress.current = now;
      go({[name]: now}, {replace: true});
    }, TYPING);
  };
  useEffect(() => {
    if (value === inAddress.current) return;
    // The address says something that was not typed here: by a link, or the back button.
    clearTimeout(later.current);
    inAddress.current = value;
    setDraft(value);
  }, [value]);
  useEffect(() => () => clearTimeout(later.current), []);
  return html`<input ref=${input} name=${name} value=${draft} onInput=${type} spellcheck=${false} ...${also} />`;
}

const Page = memo(({index, rows, seen}) => {
  const body = useRef(null);
  useEffect(() => seen(body.current, index), [index, seen]);
  return html`<tbody ref=${body}>${rows.map((row) => html`<${Row} key=${row.context_id} row=${row} />`)}</tbody>`;
});

const Row = memo(({row}) => html`
  <tr data-context=${row.context_id}>
    <th scope="row" class="id"><a ...${to({screen: 'conversation', context: row.context_id})}>${row.context_id}</a></th>
    <td><time datetime=${row.started_at} title=${whole(row.started_at)}>${moment(row.started_at)}</time></td>
    <td><time datetime=${row.last_at} title=${whole(row.last_at)}>${moment(row.last_at)}</time></td>
    <td><span class=${`status ${row.status}`}>${row.status}</span>${row.experiment && html` <small>experiment</small>`}</td>
    <td class="number" data-unit="frames">${number(row.version)}</td>
    <td class="said">${isRedacted(row.last_words) ? text(row.last_words) : row.last_words}</td>
    <td class="number" data-unit="tokens">${number(row.input_tokens ?? 0)} / ${number(row.output_tokens ?? 0)}</td>
    <td class="number" data-unit="calls" title=${`${count(row.call_count, 'call')}, ${row.open_call_count} open`}>
      ${number(row.call_count)}${row.open_call_count > 0 && html` <b>(${number(row.open_call_count)} open)</b>`}
    </td>
    <td class=${row.interruption_count > 0 ? 'number cut' : 'number none'} data-unit="✂︎">${row.interruption_count > 0 ? number(row.interruption_count) : ''}</td>
  </tr>
`);

function isNarrow({q, status, model, since}) {
  return [q, status, model, since].some((one) => one !== undefined);
}

/** Returns the text for pages without a conversation, each of which has searched this many. */
function unmatched({next, shown}, {q, model}) {
  if (next === null) return 'No conversation matches these filters.';
  const searched = q || model ? SEARCHED : SEARCHED_BY_STATUS;
  return `None of the newest ${number(searched * shown.length)} conversations matches these filters. More looks further.`;
}

/** Returns the path of the list in the API. Whoever is shown no words may not search for them, but for ids. */
function pathOf({q, status, model, since, order, experiments}, {redact}) {
  const asked = new URLSearchParams();
  const given = {[redact ? 'prefix' : 'q']: q, status, model, order, experiments: experiments && 'true'};
  for (const [name, value] of Object.entries(given)) if (value) asked.set(name, value);
  const day = Date.parse(`${since}T00:00`);
  // What is no day is for the API to refuse: left out, the list would look filtered.
  if (since) asked.set('since', Number.isNaN(day) ? since : new Date(day).toISOString());
  return `/v1/contexts?${asked}`;
}
