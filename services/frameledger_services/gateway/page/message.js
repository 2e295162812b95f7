/** One message of a context. All that it says is text: no markup, nothing that is fetched. */

import {href} from './address.js';
import {html, memo} from './html.js';
import {placeOf} from './past.js';
import {parts, roleOf, text} from './words.js';

const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,/;

/**
 * @param {{row: import('./past.js').Row, fresh: boolean, at: number}} about `fresh`: the frame that is looked at made it
 */
export const Message = memo(({row, fresh, at, unheard}) => {
  const {message} = row;
  const role = roleOf(message);
  return html`
    <li data-place=${placeOf(row)} data-role=${role} class=${fresh ? 'message fresh' : 'message'}>
      <div class="role">${role}${message?.name && html` <small>${text(message.name)}</small>`}</div>
      <div class="body">
        ${parts(message).map((one) => html`<${Part} part=${one} />`)}
        ${unheard && html`<p class="unheard"><span class="label">said, not heard</span> <del>${unheard}</del></p>`}
        ${(Array.isArray(message?.tool_calls) ? message.tool_calls : []).map((call) => html`<${Call} call=${call} />`)}
      </div>
      <div class="from">
        ${fresh ? html`<span class="new">new</span>` : null}
        <a href=${href({at: row.valid_from})} title="The version that made it">${row.valid_from}</a>
        <a href=${href({tab: 'why', message: placeOf(row), at})}>why</a>
      </div>
    </li>
  `;
});

function Part({part}) {
  if (part.kind === 'image' && PICTURE.test(part.source)) {
    return html`<img class="picture" src=${part.source} alt=${part.text} />`;
  }
  return html`<p class=${part.kind === 'text' ? 'words' : 'words raw'}>${part.text}</p>`;
}

function Call({call}) {
  const {name, arguments: given} = call?.function ?? {};
  return html`<p class="call" data-call=${text(call?.id)}><b>${text(name)}</b> <code>${text(given)}</code></p>`;
}
