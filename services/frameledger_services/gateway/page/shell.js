/** What is around every screen: the name, who asks, light and dark. */

import {href, read} from './address.js';
import {signOut} from './api.js';
import {Count} from './attention.js';
import {Heading} from './heading.js';
import {html, useState} from './html.js';

const THEMES = {auto: 'Theme: as the system', light: 'Theme: light', dark: 'Theme: dark'};
const STORED = 'frameledger-theme';

let theme = stored();
apply();

/** @param {{session?: {name: string, prefix: string, redact: boolean, needs_token: boolean}, end?: () => void}} about */
export function Shell({session, end, children}) {
  return html`
    <header class="bar">
      <a class="brand" href=${href({screen: 'list', context: null})}>Frameledger</a>
      <span class="space"></span>
      ${session && html`<a class="quiet attention" href=${href({screen: 'work', context: null})} aria-current=${read().screen === 'work' ? 'page' : null}><span>What </span>needs a person<${Count} /></a>`}
      ${session && html`<${Who} session=${session} end=${end} />`}
      <a class="quiet" href="/docs">API</a>
      <${Theme} />
    </header>
    ${children}
  `;
}

/** A screen that says why there is nothing to see. */
export function Failure({problem, again, title}) {
  return html`
    <main class="failure">
      <${Heading}>${title ?? problem.title}<//>
      <p>${problem.detail ?? problem.message}</p>
      <p class="actions">
        ${again && html`<button type="button" onClick=${again}>Try again</button>`}
        <a href=${href({screen: 'list', context: null})}>All conversations</a>
        ${problem.type?.startsWith('/problems/') && html`<a href=${problem.type}>What this means</a>`}
      </p>
    </main>
  `;
}

function Who({session, end}) {
  const leave = () => signOut().then(end, end);
  return html`
    <span class="who">
      ${session.prefix && html`<span title="Only conversations whose id begins so">${session.prefix}*</span>`}
      ${session.redact && html`<span title="This token sees no text">words hidden</span>`}
      ${session.needs_token && html`<span>${session.name}</span>`}
      ${session.needs_token && html`<button type="button" class="quiet" onClick=${leave}>Sign out</button>`}
    </span>
  `;
}

function Theme() {
  const [, draw] = useState(theme);
  const turn = () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try {
      localStorage.setItem(STORED, theme);
    } catch {
      // Without storage it holds until the page is loaded again.
    }
    apply();
    draw(theme);
  };
  return html`<button type="button" class="quiet theme" data-theme=${theme} aria-label=${THEMES[theme]} title=${THEMES[theme]} onClick=${turn} />`;
}

function stored() {
  try {
    const found = localStorage.getItem(STORED);
    return found in THEMES ? found : 'auto';
  } catch {
    return 'auto';
  }
}

function apply() {
  document.documentElement.dataset.theme = theme;
}
