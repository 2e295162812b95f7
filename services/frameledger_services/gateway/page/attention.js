/** How many calls need a person now, asked every few seconds while somebody looks at the page. */

import {html, useEffect, useState} from './html.js';
import {useAnswer} from './answer.js';

/** Between two looks, in milliseconds. */
const EVERY = 5_000;

/** Returns a number that grows every few seconds while somebody looks. */
export function useTick() {
  const [tick, grow] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || grow((before) => before + 1), EVERY);
    return () => clearInterval(timer);
  }, []);
  return tick;
}

/** Returns the calls of `/v1/waiting` that wait for a person, or those that wait for the client which brought their
 * function; undefined while they are not known. */
export function waitingFor(who, answer) {
  return answer.data?.calls.filter((call) => call.by_client === (who === 'client'));
}

/** How many calls wait for a person or are ambiguous; nothing at zero. */
export function Count() {
  const tick = useTick();
  const waiting = waitingFor('person', useAnswer('/v1/waiting', tick))?.length ?? 0;
  const ambiguous = useAnswer('/v1/ambiguous', tick).data?.calls.length ?? 0;
  return waiting + ambiguous === 0 ? null : html` <span class="count">${waiting + ambiguous}<span class="hidden"> now</span></span>`;
}
