/** Lanes by time: who spoke, which runs answered, which calls were made; glyphs say what colours say, too. */

import {clock, length} from './format.js';
import {html, memo, useEffect, useMemo, useRef, useState} from './html.js';

const BAR = 8;
const TOP = 14;
const GAP = 6;
/** Calls at the same time are drawn above each other, in at most this many rows. */
const ROWS = 3;
/** A time of day needs about so much room. */
const LABEL = 160;

const GLYPHS = {
  interruption: '✂\uFE0E',
  interrupted: '✂\uFE0E',
  error: '!',
  history: '¶',
  rewritten: '✎\uFE0E',
  mirror: '⇄',
  end: '■',
  failed: '✕',
  cancelled: '⊘',
  ambiguous: '?',
  resolved: '✓',
};
const MARKED = new Set(['interruption', 'ambiguous', 'error', 'history', 'rewritten', 'mirror', 'end']);
const NAMES = {user: 'user', voice: 'voice', runs: 'runs', calls: 'calls'};

/**
 * @param {{axis: import('./axis.js').Axis, spans: ReturnType<import('./spans.js').spansOf>, frames: object, at: number,
 *   step: (version: number) => void}} about
 */
export function Lanes({axis, spans, frames, at, step}) {
  const track = useRef(null);
  const width = useWidth(track);
  const lanes = useMemo(() => laidOut(spans), [spans]);
  const height = lanes.reduce((sum, one) => sum + one.height + GAP, TOP);
  const move = (event) => {
    if (event.buttons !== 1) return;
    const box = track.current.getBoundingClientRect();
    step(axis.versionAt(((event.clientX - box.left) / box.width) * axis.length));
  };
  const hold = (event) => {
    track.current.setPointerCapture(event.pointerId);
    move(event);
  };
  return html`
    <div class="lanes" role="img" aria-label=${summary(spans)}>
      <div class="labels" aria-hidden="true" style=${{paddingTop: `${TOP}px`}}>
        ${lanes.map((one) => html`<span key=${one.name} style=${{height: `${one.height + GAP}px`}}>${NAMES[one.name]}</span>`)}
      </div>
      <div class="track" ref=${track} onPointerDown=${hold} onPointerMove=${move}>
        ${width > 0 && html`<${Drawing} axis=${axis} lanes=${lanes} marks=${spans.marks} frames=${frames} width=${width} height=${height} />`}
        <div class="playhead" style=${{transform: `translateX(${axis.part(at) * width}px)`}}></div>
      </div>
    </div>
  `;
}

const Drawing = memo(({axis, lanes, marks, frames, width, height}) => {
  const x = (version) => axis.part(version) * width;
  let top = TOP;
  const drawn = lanes.map((lane) => {
    const found = html`<g key=${lane.name} class=${lane.name}>
      ${lane.spans.map(({span, row}) => html`<${Bar} span=${span} x=${x} y=${top + row * (BAR + 2)} end=${axis.newest} />`)}
    </g>`;
    top += lane.height + GAP;
    return found;
  });
  return html`
    <svg width=${width} height=${height + 14} aria-hidden="true">
      <defs>
        <pattern id="waiting" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="2" height="5" />
        </pattern>
      </defs>
      ${axis.pauses.map(({version, pause}) => html`<${Pause} from=${x(version - 1)} to=${x(version)} pause=${pause} height=${height} />`)}
      ${drawn}
      ${marks.filter((one) => MARKED.has(one.kind)).map((one) => html`<${Mark} mark=${one} x=${x(one.version)} height=${height} />`)}
      <${Times} axis=${axis} frames=${frames} width=${width} y=${height + 10} />
    </svg>
  `;
});

function Bar({span, x, y, end}) {
  const left = x(span.from);
  const right = x(span.to ?? end);
  const wide = Math.max(right - left, 2);
  const waits = span.waits === null || span.waits === undefined ? null : x(span.waits);
  return html`<g class=${`bar ${span.kind}`}>
    <title>${span.name}: ${span.kind}, ${span.from}–${span.to ?? '…'}</title>
    <rect x=${left} y=${y} width=${wide} height=${BAR} rx="2" />
    ${waits !== null && html`<rect class="waits" x=${waits} y=${y} width=${Math.max(right - waits, 2)} height=${BAR} />`}
    ${GLYPHS[span.kind] && html`<text x=${left + wide + 2} y=${y + BAR}>${GLYPHS[span.kind]}</text>`}
  </g>`;
}

function Mark({mark, x, height}) {
  return html`<g class=${`mark ${mark.kind}`}>
    <title>${mark.name}, version ${mark.version}</title>
    <line x1=${x} x2=${x} y1=${TOP - 2} y2=${height} />
    <text x=${x} y="10" text-anchor="middle">${GLYPHS[mark.kind]}</text>
  </g>`;
}

function Pause({from, to, pause, height}) {
  return html`<g class="silence"><title>pause of ${length(pause)}, drawn shorter</title>
    <rect x=${from} y=${TOP - 4} width=${to - from} height=${height - TOP + 4} />
    ${to - from > 44 && html`<text x=${(from + to) / 2} y="10" text-anchor="middle">${length(pause)}</text>`}
  </g>`;
}

function Times({axis, frames, width, y}) {
  const labels = Math.min(Math.max(Math.floor(width / LABEL), 2), 7);
  let before = '';
  return Array.from({length: labels}, (_, index) => {
    const part = index / (labels - 1);
    const frame = frames.at(axis.versionAt(part * axis.length)) ?? frames.at(axis.first + 1);
    const time = frame === undefined ? before : clock(frame.logged_at);
    if (time === before) return null;
    before = time;
    const anchor = index === 0 ? 'start' : index === labels - 1 ? 'end' : 'middle';
    return html`<text class="time" key=${index} x=${part * width} y=${y} text-anchor=${anchor}>${time}</text>`;
  });
}

/** Returns the lanes that have something in them, each span with its row. */
function laidOut(spans) {
  return Object.keys(NAMES)
    .filter((name) => spans[name].length > 0)
    .map((name) => {
      const ends = [];
      const placed = spans[name].map((span) => ({span, row: name === 'calls' ? rowFor(ends, span) : 0}));
      return {name, spans: placed, height: Math.max(ends.length, 1) * (BAR + 2)};
    });
}

function rowFor(ends, span) {
  const free = ends.findIndex((end) => end < span.from);
  const row = free >= 0 ? free : Math.min(ends.length, ROWS - 1);
  ends[row] = Math.max(ends[row] ?? 0, span.to ?? Infinity);
  return row;
}

function summary({user, runs, calls, marks}) {
  const cut = marks.filter((one) => one.kind === 'interruption').length;
  return `Lanes by time: ${user.length} turns of the user, ${runs.length} answers, ${calls.length} calls, ${cut} interruptions`;
}

function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return width;
}
