/** What was made for a message and is not in the context: never heard, superseded, or too late. */

import {html} from './html.js';
import {Frame, Versions} from './facts.js';
import {count} from './format.js';
import {isRedacted, text} from './words.js';

/** What was thrown away on the way to a message, each with its frames; nothing if all was kept. */
export function Thrown({found, kept}) {
  const lost = [...unheard(found.run, kept), ...superseded(found.run), ...ignored(found)];
  if (lost.length === 0) return null;
  return html`<section class="thrown" aria-label="Thrown away"><h3>Thrown away</h3>
    <ul>${lost.map(({name, where, said}) => html`<li><strong>${name}</strong> ${where}
      ${said && html`<p class="words"><del>${said}</del></p>`}</li>`)}</ul></section>`;
}

/** What a run said that nobody heard: the rest of a message that an interruption cut. */
function unheard(run, kept) {
  const said = run?.said;
  if (!said) return [];
  if (isRedacted(said)) return [{name: 'Said, and heard in part', said: text(said)}];
  if (typeof kept === 'string' && kept !== '' && said.startsWith(kept)) {
    const rest = said.slice(kept.length).trim();
    return rest === '' ? [] : [{name: 'Said, never heard', said: rest}];
  }
  return [{name: 'Said, and heard in part', said}];
}

function superseded(run) {
  return (run?.attempts ?? [])
    .filter((one) => one.superseded)
    .map((one) => ({
      name: `Attempt ${one.attempt}, superseded`,
      where: html`${count(one.frames, 'frame')}, <${Versions} from=${one.from} to=${one.to} />`,
      said: one.text && text(one.text),
    }));
}

function ignored({run, call}) {
  const late = [...(run?.ignored ?? []), ...(call?.frames ?? []).filter((one) => one.frame.outcome === 'ignored')];
  return late.map((one) => ({
    name: `Ignored (${one.frame.reason})`,
    where: html`<${Frame} frame=${one.frame} />`,
    said: one.text && text(one.text),
  }));
}
