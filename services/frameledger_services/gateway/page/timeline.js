/** The time of a conversation: lanes, the slider over its versions, and what plays it. */

import {go} from './address.js';
import {useAnswer} from './answer.js';
import {contextPath} from './api.js';
import {Axis} from './axis.js';
import {html, useEffect, useReducer, useRef} from './html.js';
import {Lanes} from './lanes.js';
import {Player, useReplay} from './replay.js';
import {Scrubber} from './scrubber.js';
import {spansOf} from './spans.js';

/** What is drawn of time takes at most this part of it, however many frames come. */
const SHARE = 1 / 20;

/** Returns axis and spans of the frames that are here, made anew when there are more of them, or more is known of
 * calls. These are asked for only where some of them began that no frame tells of. */
export function useTime(id, frames) {
  const [, draw] = useReducer((count) => count + 1, 0);
  const made = useRef({key: null, at: -Infinity, took: 0});
  const told = useRef({calls: [], count: 0});
  const key = `${frames.first} ${frames.here} ${frames.count} ${told.current.count}`;
  const {at, took} = made.current;
  const wait = at + took / SHARE - performance.now();
  if (made.current.key !== key && wait <= 0) made.current = make(frames, told.current.calls, key);
  const isLate = made.current.key !== key;
  useEffect(() => {
    if (!isLate) return undefined;
    const later = setTimeout(draw, Math.max(wait, 0) + 1);
    return () => clearTimeout(later);
  }, [isLate, key]);
  const {began} = made.current.spans;
  const {data} = useAnswer(began === null ? null : contextPath(id, '/calls'), began);
  useEffect(() => {
    if (data === null) return;
    told.current = {calls: data.calls, count: told.current.count + 1};
    draw();
  }, [data]);
  return made.current;
}

function make(frames, calls, key) {
  const began = performance.now();
  const found = {key, axis: new Axis(frames), spans: spansOf(frames, calls)};
  // Drawing them takes about as long again.
  return {...found, at: performance.now(), took: 3 * (performance.now() - began)};
}

export function Timeline({source, time, at, asked, step, playing, play, stop, speed}) {
  const {axis, spans} = time;
  useReplay({playing, speed, at, axis, marks: spans.marks, step, stop});
  const setSpeed = (value) => go({speed: value === 1 ? null : value}, {replace: true});
  return html`
    <section class="timeline" aria-label="Time">
      <${Lanes} axis=${axis} spans=${spans} frames=${source.frames} at=${at} step=${step} />
      <${Scrubber} source=${source} marks=${spans.marks} at=${at} asked=${asked} step=${step}>
        <${Player} playing=${playing} speed=${speed} toggle=${play} setSpeed=${setSpeed} />
      <//>
    </section>
  `;
}
