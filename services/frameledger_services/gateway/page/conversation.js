/** One conversation: its time, its frames beside the context that they make, and panels. */

import {go, href, useAddress} from './address.js';
import {Context} from './context.js';
import {Frames} from './frames.js';
import {html} from './html.js';
import {lazy} from './lazy.js';
import {Scrubber} from './scrubber.js';
import {Failure} from './shell.js';
import {useSource} from './source.js';

const TABS = {
  runs: ['Runs', lazy(() => import('./runs.js'), 'Runs')],
  calls: ['Calls', lazy(() => import('./calls.js'), 'Calls')],
  diff: ['Diff', lazy(() => import('./diff.js'), 'Diff')],
  request: ['Request', lazy(() => import('./request.js'), 'Request')],
  verify: ['Verify', lazy(() => import('./verify.js'), 'Verify')],
  why: ['Why', lazy(() => import('./why.js'), 'Why')],
};

/** @param {{id: string}} about */
export function Conversation({id}) {
  const address = useAddress();
  const source = useSource(id, address.at);
  if (source?.problem) return html`<${Failure} problem=${source.problem} title=${id} />`;
  if (source === null || source.past === null) return html`<main class="waiting"><h1>${id}</h1></main>`;
  const {newest, frames} = source;
  const at = Math.min(Math.max(address.at ?? newest, frames.first), newest);
  const step = (version) => go({at: Math.min(Math.max(version, frames.first), newest)}, {replace: true});
  return html`
    <main class="conversation">
      <header>
        <h1>${id}</h1>
        <${Tabs} now=${address.tab} />
      </header>
      <${Scrubber} source=${source} at=${at} step=${step} />
      <${Body} id=${id} address=${address} source=${source} at=${at} />
    </main>
  `;
}

function Body({id, address, source, at}) {
  const [, Panel] = TABS[address.tab] ?? [];
  return html`
    <div class="panes">
      ${Panel === undefined || address.tab === 'why' ? html`<${Frames} source=${source} at=${at} />` : null}
      ${Panel === undefined
        ? html`<${Context} source=${source} at=${at} />`
        : html`<div class="panel"><${Panel} id=${id} at=${at} newest=${source.newest} go=${go} live=${source.generation} /></div>`}
    </div>
  `;
}

function Tabs({now}) {
  const shown = Object.entries(TABS).filter(([tab]) => tab !== 'why' || now === 'why');
  return html`
    <nav class="tabs" aria-label="Views">
      <a href=${href({tab: null, message: null})} aria-current=${now in TABS ? null : 'page'}>Context</a>
      ${shown.map(([tab, [name]]) => html`<a key=${tab} href=${href({tab})} aria-current=${tab === now ? 'page' : null}>${name}</a>`)}
    </nav>
  `;
}
