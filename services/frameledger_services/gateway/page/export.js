/** What one takes along of a conversation: files of it, and commands that go on from a version. */

import {html} from './html.js';
import {contextPath} from './api.js';
import {Copied, quoted} from './facts.js';

/** A menu of downloads and commands, for the version that is shown. */
export function Export({id, at}) {
  const frames = contextPath(id, '/frames?format=ndjson');
  const as = (form) => contextPath(id, `?version=${at}${form ? `&form=${form}` : ''}`);
  return html`<details class="export">
    <summary>Export</summary>
    <div class="menu">
      <h3>Files</h3>
      <ul>
        <li><a href=${frames} download=${`${id}.jsonl`}>All frames, as NDJSON</a></li>
        <li><a href=${as()} download=${`${id}-${at}.json`}>The context at version ${at}, as JSON</a></li>
        <li><a href=${as('openai')} download=${`${id}-${at}.openai.json`}>As a request to OpenAI</a></li>
        <li><a href=${as('anthropic')} download=${`${id}-${at}.anthropic.json`}>As a request to Anthropic</a></li>
      </ul>
      <h3>Commands</h3>
      <p class="faint">Export it to take it to another database:</p>
      <${Copied} label="the command that exports">${`frameledger export ${quoted(id)} -o ${quoted(`${id.replaceAll('/', '_')}.jsonl`)}`}<//>
      <p class="faint">Continue version ${at} as a conversation of its own:</p>
      <${Copied} label="the command that forks">${`frameledger fork ${quoted(id)} ${quoted(`${id}-fork`)} --at ${at}`}<//>
      <p class="faint">Ask a model again what it was asked, and compare:</p>
      <${Copied} label="the command that asks again">${`frameledger rerun ${quoted(id)}`}<//>
    </div>
  </details>`;
}
