/** One conversation: its time, its frames beside the context that they make, and panels. */

import {go, isFolder, to, useAddress} from './address.js';
import {Context} from './context.js';
import {Export} from './export.js';
import {Frames} from './frames.js';
import {Heading} from './heading.js';
import {html, useEffect, useReducer, useState} from './html.js';
import {KeysHelp, useKeys} from './keys.js';
import {lazy} from './lazy.js';
import {Failure} from './shell.js';
import {Source} from './source.js';
import {leap} from './spans.js';
import {Timeline, useTime} from './timeline.js';

const PANELS = {
  // Without the names that every object has: the tab of an address may be any text.
  __proto__: null,
  runs: ['Runs', lazy(() => import('./runs.js'), 'Runs')],
  calls: ['Calls', lazy(() => import('./calls.js'), 'Calls')],
  diff: ['Diff', lazy(() => import('./diff.js'), 'Diff')],
  request: ['Request', lazy(() => import('./request.js'), 'Request')],
  verify: ['Verify', lazy(() => import('./verify.js'), 'Verify')],
  why: ['Why', lazy(() => import('./why.js'), 'Why')],
};

/** @param {{id: string}} about */
export function Conversation({id}) {
  useEffect(() => {
    document.title = `${id} · Frameledger`;
  }, [id]);
  return isFolder(id) ? html`<${Failure} problem=${unreachable(id)} title=${id} />` : html`<${Opened} id=${id} />`;
}

function unreachable(id) {
  return {detail: `Browsers take “${id}” in an address for a folder, so this page cannot ask for this conversation. In a terminal: frameledger show ${id}`};
}

function Opened({id}) {
  const {at} = useAddress();
  const source = useSource(id, at);
  if (source?.problem) return html`<${Failure} problem=${source.problem} title=${id} again=${() => source.again()} />`;
  if (source === null || source.past === null) return html`<main class="waiting"><${Heading}>${id}<//></main>`;
  return html`<${Loaded} id=${id} source=${source} />`;
}

/** Returns the source of a conversation, and draws the component again when it knows more. */
function useSource(id, at) {
  const [, draw] = useReducer((count) => count + 1, 0);
  const [source, setSource] = useState(null);
  useEffect(() => {
    const opened = new Source(id);
    const end = opened.subscribe(draw);
    setSource(opened);
    opened.open(at);
    return () => {
      end();
      opened.close();
    };
  }, [id]);
  return source;
}

function Loaded({id, source}) {
  const address = useAddress();
  const {newest, frames} = source;
  const follows = address.at === null;
  const at = follows ? newest : Math.min(Math.max(address.at, frames.first), newest);
  const time = useTime(id, frames);
  const [playing, setPlaying] = useState(false);
  const [help, setHelp] = useState(false);

  const step = (version) => go({at: Math.min(Math.max(version, frames.first), source.newest)}, {replace: true});
  const toMark = (forward) => {
    const version = leap(time.spans.marks, at, forward);
    if (version !== null) step(version);
  };
  const play = () => {
    // From the end there is nothing to play, so it begins anew.
    if (!playing && at >= newest) step(frames.first);
    setPlaying(!playing);
  };
  const follow = () => {
    setPlaying(false);
    go({at: follows ? newest : null});
  };
  useKeys({
    '.': () => step(at + 1),
    ',': () => step(at - 1),
    ']': () => toMark(true),
    '[': () => toMark(false),
    ' ': play,
    Home: () => step(frames.first),
    End: () => go({at: null}),
    f: follow,
    '/': () => go({screen: 'list', context: null, search: '1'}),
    '?': () => setHelp(true),
  });
  useEffect(() => {
    if (frames.at(at) === undefined && at > frames.first) source.loadFrames(at);
  }, [at]);

  return html`
    <main class="conversation">
      <header class="head">
        <${Heading}>${id}<//>
        <${State} source=${source} follows=${follows} follow=${follow} />
        <${Export} id=${id} at=${at} />
        <${Tabs} now=${address.tab} />
        <button type="button" class="quiet" aria-label="Keys" title="Keys (?)" onClick=${() => setHelp(true)}>?</button>
      </header>
      <${Timeline} source=${source} time=${time} at=${at} asked=${address.at ?? at} step=${step} playing=${playing} play=${play}
        stop=${() => setPlaying(false)} speed=${Number(address.speed ?? 1) || 1} />
      <${Body} id=${id} address=${address} source=${source} at=${at} sticks=${follows || playing} />
      ${help && html`<${KeysHelp} close=${() => setHelp(false)} />`}
    </main>
  `;
}

function Body({id, address, source, at, sticks}) {
  const [, Panel] = PANELS[address.tab] ?? [];
  const panel = Panel && html`<div class="panel" key="panel">
    <${Panel} id=${id} at=${at} newest=${source.newest} go=${go} live=${source.generation} source=${source} address=${address} />
  </div>`;
  const isWhy = address.tab === 'why';
  if (Panel !== undefined && !isWhy) return html`<div class="panes one">${panel}</div>`;
  const context = html`<${Context} key="context" source=${source} at=${at} sticks=${sticks} selected=${isWhy ? address.message : null} />`;
  return html`<div class=${isWhy ? 'panes why' : 'panes'}>
    ${isWhy ? [context, panel] : [html`<${Frames} key="frames" source=${source} at=${at} />`, context]}
  </div>`;
}

const STATES = {
  connecting: ['…', 'connecting'],
  live: ['●', 'live'],
  reconnecting: ['◌', 'not live: asking again'],
  paused: ['◌', 'paused'],
  over: ['■', 'live: ended'],
};

function State({source, follows, follow}) {
  const [glyph, says] = STATES[source.state];
  return html`
    <span class=${`state ${source.state}`} role="status">
      <span aria-hidden="true">${glyph}</span> ${says}${source.status && source.state === 'live' ? `: ${source.status}` : ''}
    </span>
    <button type="button" class="follow" aria-pressed=${follows ? 'true' : 'false'} onClick=${follow}
      title=${follows ? 'Follows the newest version (f)' : 'Stays at this version (f)'}>Follow</button>
  `;
}

function Tabs({now}) {
  const shown = Object.entries(PANELS).filter(([tab]) => tab !== 'why' || now === 'why');
  return html`
    <nav class="tabs" aria-label="Views">
      <a ...${to({tab: null, message: null})} aria-current=${now in PANELS ? null : 'page'}>Context</a>
      ${shown.map(([tab, [name]]) => html`<a key=${tab} ...${to({tab})} aria-current=${tab === now ? 'page' : null}>${name}</a>`)}
    </nav>
  `;
}
