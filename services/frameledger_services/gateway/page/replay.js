/** Plays a conversation: versions come as their frames were logged, at a speed, with pauses shortened. */

import {html, useEffect, useRef} from './html.js';

export const SPEEDS = [0.5, 1, 2, 4, 8, 16];

const calm = matchMedia('(prefers-reduced-motion: reduce)');

/**
 * Steps while `playing`, and calls `stop` at the end.
 * @param {{playing: boolean, speed: number, at: number, axis: import('./axis.js').Axis, marks: {version: number}[],
 *   step: (version: number) => void, stop: () => void}} about
 */
export function useReplay({playing, speed, at, axis, marks, step, stop}) {
  const now = useRef(null);
  const shown = useRef(at);
  shown.current = at;
  useEffect(() => {
    if (!playing) return undefined;
    let offset = axis.offset(shown.current);
    let before = performance.now();
    let last = shown.current;
    const tick = (time) => {
      // Somebody moved it meanwhile: go on from there.
      if (shown.current !== last) offset = axis.offset(shown.current);
      offset += (time - before) * speed;
      before = time;
      const version = calm.matches ? markUpTo(marks, axis.versionAt(offset), shown.current) : axis.versionAt(offset);
      last = Math.max(version, shown.current);
      if (last > shown.current) step(last);
      if (offset >= axis.length) {
        step(axis.newest);
        stop();
        return;
      }
      now.current = requestAnimationFrame(tick);
    };
    now.current = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(now.current);
  }, [playing, speed, axis]);
}

/** Returns the newest mark up to a version: with reduced motion nothing moves between what matters. */
function markUpTo(marks, version, least) {
  return marks.findLast((one) => one.version <= version)?.version ?? least;
}

/** @param {{playing: boolean, speed: number, toggle: () => void, setSpeed: (speed: number) => void}} about */
export function Player({playing, speed, toggle, setSpeed}) {
  return html`
    <button type="button" class="play" aria-label=${playing ? 'Pause' : 'Play'} title=${playing ? 'Pause (space)' : 'Play (space)'}
      onClick=${toggle}><span class=${playing ? 'icon pause' : 'icon play'}></span></button>
    <label class="speed"><span class="hidden">Speed</span>
      <select value=${String(speed)} onChange=${(event) => setSpeed(Number(event.target.value))}>
        ${SPEEDS.map((one) => html`<option key=${one} value=${String(one)}>×${one}</option>`)}
      </select>
    </label>
  `;
}
