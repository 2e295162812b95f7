/** What else a model is given beside the messages: tools and settings, each with the version since which it holds. */

import {to} from './address.js';
import {count} from './format.js';
import {html} from './html.js';
import {text} from './words.js';

export function Terms({tools, toolsSince, choice, settings, others, hidden, at}) {
  if (hidden !== null) return html`<p class="terms">Tools and settings: ${text(hidden)}</p>`;
  const fresh = [toolsSince, choice?.since, ...settings.map(([, one]) => one.since), ...others.map(([, one]) => one.since)];
  return html`
    <details class=${fresh.includes(at) && at > 0 ? 'terms fresh' : 'terms'}>
      <summary>
        ${count(tools.length, 'tool')} · ${count(settings.length, 'setting')}
        ${choice !== null && html` · tool choice ${text(choice.value)}`}
      </summary>
      ${tools.length > 0 && html`
        <h3>Tools, since <${Since} version=${toolsSince} /></h3>
        <ul class="tools">${tools.map((tool) => html`<${Tool} tool=${tool} />`)}</ul>
      `}
      ${settings.length + others.length > 0 && html`
        <table class="settings">
          <caption>Settings</caption>
          <thead><tr><th scope="col">name</th><th scope="col">value</th><th scope="col">since</th></tr></thead>
          <tbody>
            ${[...settings, ...others].map(([name, one]) => html`
              <tr key=${name}>
                <th scope="row">${name}</th>
                <td data-setting=${name}><code>${JSON.stringify(one.value)}</code></td>
                <td><${Since} version=${one.since} /></td>
              </tr>
            `)}
          </tbody>
        </table>
      `}
    </details>
  `;
}

function Tool({tool}) {
  const {name, description} = tool?.function ?? {};
  const named = text(name ?? tool);
  return html`<li data-tool=${named}><b>${named}</b> ${description !== undefined && text(description)}</li>`;
}

function Since({version}) {
  return html`<a class="since" ...${to({at: version})}>${version}</a>`;
}
