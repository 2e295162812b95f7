/** The list of conversations. */

import {go, href, useAddress} from './address.js';
import {getPage} from './api.js';
import {count, moment, number, whole} from './format.js';
import {html, memo, useEffect, useState} from './html.js';
import {Failure} from './shell.js';

const STATUSES = ['quiet', 'answering', 'calling', 'ended', 'recording', 'parked'];

export function List() {
  const address = useAddress();
  const path = pathOf(address);
  const [rows, setRows] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    setProblem(null);
    getPage(path, {signal: stop.signal}).then(
      ({value}) => setRows(value.contexts),
      (found) => found.name !== 'AbortError' && setProblem(found),
    );
    return () => stop.abort();
  }, [path]);
  if (problem !== null) return html`<${Failure} problem=${problem} />`;
  return html`
    <main class="list">
      <h1>Conversations</h1>
      <${Filters} address=${address} />
      <table>
        <caption>Conversations</caption>
        <thead><tr>
          <th scope="col">conversation</th><th scope="col">started</th><th scope="col">last</th><th scope="col">status</th>
          <th scope="col" class="number">frames</th><th scope="col">last words</th>
          <th scope="col" class="number">tokens in / out</th><th scope="col" class="number">calls</th>
        </tr></thead>
        <tbody>${(rows ?? []).map((row) => html`<${Row} key=${row.context_id} row=${row} />`)}</tbody>
      </table>
      ${rows?.length === 0 && html`<p class="empty">No conversation is like this.</p>`}
    </main>
  `;
}

function Filters({address}) {
  const set = (name) => (event) => go({[name]: event.target.value}, {replace: true});
  return html`
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Search <input type="search" value=${address.q ?? ''} onInput=${set('q')} /></label>
      <label>Status <select value=${address.status ?? ''} onChange=${set('status')}>
        <option value="">any</option>${STATUSES.map((one) => html`<option value=${one}>${one}</option>`)}
      </select></label>
      <label>Model <input value=${address.model ?? ''} onChange=${set('model')} /></label>
      <label>Since <input type="date" value=${address.since ?? ''} onChange=${set('since')} /></label>
    </form>
  `;
}

const Row = memo(({row}) => html`
  <tr data-context=${row.context_id}>
    <th scope="row"><a href=${href({context: row.context_id})}>${row.context_id}</a></th>
    <td><time datetime=${row.started_at} title=${whole(row.started_at)}>${moment(row.started_at)}</time></td>
    <td><time datetime=${row.last_at} title=${whole(row.last_at)}>${moment(row.last_at)}</time></td>
    <td>${row.status}</td>
    <td class="number">${number(row.version)}</td>
    <td>${typeof row.last_words === 'string' ? row.last_words : ''}</td>
    <td class="number">${number(row.input_tokens ?? 0)} / ${number(row.output_tokens ?? 0)}</td>
    <td class="number" title=${count(row.call_count, 'call')}>${row.call_count}</td>
  </tr>
`);

function pathOf({q, status, model, since}) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries({q, status, model})) if (value) asked.set(name, value);
  if (since && !Number.isNaN(Date.parse(`${since}T00:00`))) asked.set('since', new Date(`${since}T00:00`).toISOString());
  return `/v1/contexts?${asked}`;
}
