/** The heading of a screen, which has the focus when one goes from screen to screen. */

import {read} from './address.js';
import {html, useLayoutEffect, useRef} from './html.js';

/** The screen whose heading was drawn last: at first the one that the page was loaded with. */
let drawn = screen();
let hasMoved = false;

/**
 * A heading of the first level. On another screen it takes the focus, so that a screen reader says where one is, and Tab
 * goes on from there; likewise where it takes the place of one that had the focus.
 */
export function Heading({children}) {
  const heading = useRef(null);
  // Before the effects of the screen: a search that is asked for has the focus after all.
  useLayoutEffect(() => {
    const isOther = screen() !== drawn;
    drawn = screen();
    hasMoved ||= isOther;
    const isLost = hasMoved && document.activeElement === document.body;
    if (isOther || isLost) heading.current.focus({preventScroll: true});
  }, []);
  return html`<h1 ref=${heading} tabindex="-1">${children}</h1>`;
}

function screen() {
  const {screen: name, context} = read();
  return `${name} ${context}`;
}
