/** Panels are loaded when they are first looked at. */

import {html, useEffect, useState} from './html.js';

/**
 * Returns a component that loads another one and draws it with the same properties.
 * @param {() => Promise<object>} load imports the module
 * @param {string} name what the module exports
 */
export function lazy(load, name) {
  let loaded = null;
  return function Lazy(properties) {
    const [state, setState] = useState(loaded);
    useEffect(() => {
      if (loaded !== null) return;
      load().then(
        (module) => setState((loaded = {draw: module[name]})),
        () => setState({failed: true}),
      );
    }, []);
    if (state === null) return html`<p class="waiting" role="status">Loading …</p>`;
    if (state.failed) return html`<p class="problem">This part of the page could not be loaded. Load the page again.</p>`;
    return html`<${state.draw} ...${properties} />`;
  };
}
