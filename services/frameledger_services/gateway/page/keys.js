/** What the keyboard does, and the page that says so. */

import {html, useEffect, useLayoutEffect, useRef} from './html.js';

const KEYS = [
  ['.', 'next version'],
  [',', 'previous version'],
  [']', 'next mark: an interruption, a turn, a call'],
  ['[', 'previous mark'],
  ['space', 'play, pause'],
  ['Home', 'first version'],
  ['End', 'newest version, and follow'],
  ['f', 'follow, or stay at this version'],
  ['/', 'search conversations'],
  ['?', 'this help'],
];
/** The signs of the lanes, which `GLYPHS` of `lanes` draws. */
const SIGNS = [
  ['✂\uFE0E', 'interruption'],
  ['!', 'error'],
  ['?', 'ambiguous call: it is unknown whether it was executed'],
  ['¶', 'new history'],
  ['✎\uFE0E', 'rewritten message'],
  ['⇄', 'another program keeps the history'],
  ['■', 'end'],
];
/** Where a key is text, or presses what has the focus. */
const TYPED = 'input:not([type="range"]), textarea, select, [contenteditable]';
const PRESSED = 'button, a, summary';
const SLID = 'input[type="range"]';

/**
 * Calls what belongs to a key while the component is there.
 * @param {Object<string, () => void>} actions by key, as `KeyboardEvent.key` names it
 */
export function useKeys(actions) {
  const now = useRef(actions);
  now.current = actions;
  // With what is shown and not after it: whoever sees it may press a key at once.
  useLayoutEffect(() => {
    const listener = (event) => {
      const action = now.current[event.key];
      if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('dialog[open]') !== null) return;
      const {target} = event;
      if (target.matches(TYPED) || (event.key === ' ' && target.matches(PRESSED))) return;
      if (target.matches(SLID) && (event.key === 'Home' || event.key === 'End')) return;
      event.preventDefault();
      action();
    };
    document.addEventListener('keydown', listener);
    return () => document.removeEventListener('keydown', listener);
  }, []);
}

/** The keys and the signs, as a dialog that is open while it is there. */
export function KeysHelp({close}) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`
    <dialog class="keys" ref=${dialog} onClose=${close} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl>${KEYS.map(([key, does]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
      <h2>Signs</h2>
      <dl>${SIGNS.map(([sign, means]) => html`<div key=${sign}><dt>${sign}</dt><dd>${means}</dd></div>`)}</dl>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  `;
}
