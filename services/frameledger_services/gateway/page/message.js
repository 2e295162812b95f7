/** One message of a context. All that it says is text: no markup, and nothing is fetched for it. */

import {to} from './address.js';
import {html, memo} from './html.js';
import {placeOf} from './past.js';
import {parts, roleOf, speakerOf, text} from './words.js';

/** Pictures that are in the message itself; an SVG may hold more than a picture. */
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,/;

/**
 * @param {{row: import('./past.js').Row, fresh: boolean, selected: boolean, unheard: string}} about `fresh`: the frame
 *   that is looked at made it. `unheard`: what was said of it and not heard
 */
export const Message = memo(({row, fresh, selected, unheard}) => {
  const {message} = row;
  const calls = Array.isArray(message?.tool_calls) ? message.tool_calls : [];
  return html`
    <li data-place=${placeOf(row)} data-role=${roleOf(message)} class=${`message${fresh ? ' fresh' : ''}${selected ? ' selected' : ''}`}>
      <${Speaker} message=${message} />
      <div class="body">
        ${parts(message).map((one) => html`<${Part} part=${one} />`)}
        ${unheard && html`<p class="unheard"><span class="label">✂︎ said, not heard</span> <del>${unheard}</del></p>`}
        ${calls.map((call) => html`<${Call} call=${call} />`)}
      </div>
      <div class="from">
        ${fresh && html`<span class="new">new</span> `}
        <a ...${to({at: row.valid_from})} title="Go to the version that made it">${row.valid_from}</a>
        <a class="why" ...${to({tab: 'why', message: placeOf(row)})} title="Where it comes from">why</a>
      </div>
    </li>
  `;
});

/** A message that the frame that is looked at took away. @param {{row: import('./past.js').Row}} about */
export function Removed({row}) {
  return html`
    <li class="message removed fresh" data-role=${roleOf(row.message)}>
      <${Speaker} message=${row.message} />
      <div class="body"><p class="words"><del>${parts(row.message).map((part) => part.text).join(' ')}</del></p></div>
      <div class="from">removed</div>
    </li>
  `;
}

function Speaker({message}) {
  const {name, by} = speakerOf(message);
  const also = by || (message?.name ? text(message.name) : '');
  return html`<div class="role">${name}${also && html` <small>${also}</small>`}</div>`;
}

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
