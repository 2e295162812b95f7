/** What one takes along of a conversation: files of it, and commands that go on from a version. */

import {html, useEffect, useRef} from './html.js';
import {contextPath} from './api.js';
import {Copied, quoted} from './facts.js';

/** A menu of downloads and commands, for the version that is shown. */
export function Export({id, at}) {
  const menu = useRef(null);
  useClosed(menu);
  const frames = contextPath(id, '/frames?format=ndjson');
  const as = (form) => contextPath(id, `?version=${at}${form ? `&form=${form}` : ''}`);
  const name = id.replaceAll('/', '_');
  return html`<details class="export" ref=${menu}>
    <summary>Export</summary>
    <div class="menu">
      <h3>Files</h3>
      <ul>
        <li><a href=${frames} download=${`${name}.jsonl`}>All frames, as NDJSON</a></li>
        <li><a href=${as()} download=${`${name}-${at}.json`}>The context at version ${at}, as JSON</a></li>
        <li><a href=${as('openai')} download=${`${name}-${at}.openai.json`}>As a request to OpenAI</a></li>
        <li><a href=${as('anthropic')} download=${`${name}-${at}.anthropic.json`}>As a request to Anthropic</a></li>
      </ul>
      <h3>Commands</h3>
      <p class="faint">Export it to take it to another database:</p>
      <${Copied} label="the command that exports">${`frameledger export ${quoted(id)} -o ${quoted(`${name}.jsonl`)}`}<//>
      <p class="faint">Continue version ${at} as a new conversation:</p>
      <${Copied} label="the command that forks">${`frameledger fork ${quoted(id)} ${quoted(`${id}-fork`)} --at ${at}`}<//>
      <p class="faint">Send the newest request to a model again, and compare:</p>
      <${Copied} label="the command that asks again">${`frameledger rerun ${quoted(id)}`}<//>
    </div>
  </details>`;
}

/** Closes a menu by Escape, and by whatever is done outside of it. */
function useClosed(menu) {
  useEffect(() => {
    const outside = (event) => {
      if (menu.current !== null && !menu.current.contains(event.target)) menu.current.open = false;
    };
    const escape = (event) => {
      if (event.key !== 'Escape' || !menu.current?.open) return;
      menu.current.open = false;
      menu.current.firstElementChild.focus();
    };
    const listeners = [['pointerdown', outside], ['focusin', outside], ['keydown', escape]];
    for (const [name, listener] of listeners) document.addEventListener(name, listener);
    return () => listeners.forEach(([name, listener]) => document.removeEventListener(name, listener));
  }, []);
}
