/** Preact and htm, bound once: every module of the page takes them from here. */

import htm from './vendor/htm/htm.mjs';
import {Component, Fragment, h, render} from './vendor/preact/preact.mjs';

export {Component, Fragment, render};
export {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from './vendor/preact/hooks.mjs';

/** Markup as a template. What is put into it becomes text or a property, never markup. */
export const html = htm.bind(h);

/**
 * A component that is drawn again only if one of its properties is another value.
 * @param {Function} draw the component
 */
export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = Object.keys(next);
      return names.length !== Object.keys(this.props).length || names.some((name) => next[name] !== this.props[name]);
    }

    render() {
      return html`<${draw} ...${this.props} />`;
    }
  };
}
