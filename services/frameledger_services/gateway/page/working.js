/** Live workers, available functions, and the progress of the projectors. */

import {html} from './html.js';
import {Missing, useAnswer} from './answer.js';
import {Badge, took} from './facts.js';
import {count, moment, number} from './format.js';

/** The three lists. */
export function Working({tick}) {
  const workers = useAnswer('/v1/workers', tick);
  const tools = useAnswer('/v1/tools', tick);
  const lag = useAnswer('/v1/lag', tick);
  return html`
    <section aria-label="Workers"><h2>Workers</h2><${Workers} answer=${workers} /></section>
    <section aria-label="Available functions"><h2>Available functions</h2><${Tools} answer=${tools} /></section>
    <section aria-label="Progress of the projectors"><h2>Progress of the projectors</h2><${Lag} answer=${lag} /></section>`;
}

function Workers({answer}) {
  if (answer.data === null) return html`<${Missing} problem=${answer.problem} what="the workers" />`;
  const {workers} = answer.data;
  if (workers.length === 0) return html`<p class="nothing">No worker is running: no run is answered, and no function is called.</p>`;
  return html`<div class="wide" role="region" aria-label="Live workers" tabindex="0"><table><caption>Live workers</caption>
    <thead><tr><th scope="col">Service</th><th scope="col">Kind</th><th scope="col">Host</th><th scope="col">Since</th>
      <th scope="col" class="number">Busy</th><th scope="col">Serves</th></tr></thead>
    <tbody>${workers.map((one) => html`<tr key=${one.worker_id}>
      <th scope="row">${one.service}</th><td>${one.kind}</td><td>${one.host} ${one.pid}</td>
      <td><time datetime=${one.started_at}>${moment(one.started_at)}</time></td>
      <td class="number">${one.busy} of ${one.slots}</td>
      <td>${one.serves_all ? 'everything' : one.serves.join(', ')}</td></tr>`)}</tbody></table></div>`;
}

function Tools({answer}) {
  if (answer.data === null) return html`<${Missing} problem=${answer.problem} what="the functions" />`;
  const {tools} = answer.data;
  if (tools.length === 0) return html`<p class="nothing">No function is available. <code>frameledger run functions</code> makes those of a module available.</p>`;
  return html`<div class="wide" role="region" aria-label="Functions" tabindex="0"><table><caption>Functions that live workers serve</caption>
    <thead><tr><th scope="col">Function</th><th scope="col">Service</th><th scope="col" class="number">Workers</th>
      <th scope="col">Options</th></tr></thead>
    <tbody>${tools.map((one) => html`<tr><th scope="row"><code>${one.function_name}</code></th><td>${one.service}</td>
      <td class="number">${one.workers}</td><td>${terms(one.options)}</td></tr>`)}</tbody></table></div>`;
}

function terms(options) {
  return Object.entries(options ?? {}).map(([name, value]) => `${name.replaceAll('_', ' ')}: ${JSON.stringify(value)}`).join(', ');
}

function Lag({answer}) {
  if (answer.data === null) return html`<${Missing} problem=${answer.problem} what="the partitions" />`;
  const {topic, partitions} = answer.data;
  return html`<p class="summary">${behind(partitions)}</p>
    <div class="wide" role="region" aria-label="Partitions" tabindex="0"><table><caption>Partitions of ${topic}</caption>
    <thead><tr><th scope="col" class="number">Partition</th><th scope="col" class="number">Read up to</th>
      <th scope="col" class="number">Behind</th><th scope="col">State</th><th scope="col">Projector</th></tr></thead>
    <tbody>${partitions.map((one) => html`<tr key=${one.partition}>
      <th scope="row" class="number">${one.partition}</th><td class="number">${number(one.next_offset)}</td>
      <td class="number">${one.gap === null ? '?' : one.gap === 0 ? '0' : `${number(one.gap)}, ${took(one.lag_seconds)}`}</td>
      <td>${one.is_owned
        ? html`<${Badge} tone=${one.gap ? 'warn' : 'good'} sign=${one.gap ? '…' : '✓'}>${one.gap ? 'behind' : 'up to date'}<//>`
        : html`<${Badge} tone="bad" sign="✗">no projector<//>`}</td>
      <td class="faint">${one.owner ?? ''}</td></tr>`)}</tbody></table></div>`;
}

function behind(partitions) {
  const unread = partitions.filter((one) => !one.is_owned).length;
  const gap = partitions.reduce((all, one) => all + (one.gap ?? 0), 0);
  const parts = [gap === 0 ? 'Every frame on the log is in the tables' : `${count(gap, 'frame')} on the log and not in the tables yet`];
  if (unread > 0) parts.push(`${count(unread, 'partition')} that no projector reads`);
  return `${parts.join(' · ')}.`;
}
