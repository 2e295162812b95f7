/**
 * A conversation as it was at any version, from the rows of `/history`. Pure functions over them.
 *
 * @typedef {{era: number, position: number, valid_from: number, valid_to: number, role: string|null,
 *   run_id: string|null, message: object}} Row  a message from one version until before another
 * @typedef {{eras: {era: number, valid_from: number}[], rows: Map<number, Row[]>,
 *   settings: {name: string, valid_from: number, value: any}[], hidden: object|null}} Past  rows by the era they are of
 */

import {isRedacted} from './words.js';

/** The era of a conversation that never replaced its history; eras from 2 on have a version that began them. */
export const FIRST_ERA = 1;

/** Beside the settings of a model these are stored by the same means, and shown apart. */
const OWN = ['tools', 'tool_choice', 'settings'];

/** Returns the era that held at a version. */
export function eraAt(past, version) {
  return past.eras.findLast((one) => one.valid_from <= version)?.era ?? FIRST_ERA;
}

/** Returns the rows that were the context's messages at a version; null if the rows of that era are not here. */
export function messagesAt(past, version) {
  const rows = past.rows.get(eraAt(past, version));
  return rows === undefined ? null : rows.filter((row) => row.valid_from <= version && version < row.valid_to);
}

/** Returns, by name, the value that each setting had at a version, and the version since which it had it. */
export function settingsAt(past, version) {
  const found = new Map();
  for (const one of past.settings) {
    if (one.valid_from <= version) found.set(one.name, {value: one.value, since: one.valid_from});
  }
  return found;
}

/**
 * Returns tools, the choice of them, the model's settings, and the other settings at a version.
 * A setting of the model is since the version at which it got its value.
 */
export function termsAt(past, version) {
  const found = settingsAt(past, version);
  const {value: tools, since} = found.get('tools') ?? {value: [], since: 0};
  return {
    tools: Array.isArray(tools) ? tools : [],
    toolsSince: since,
    choice: found.get('tool_choice') ?? null,
    settings: settingsOf(past, version),
    hidden: past.hidden,
    others: [...found].filter(([name]) => !OWN.includes(name)),
  };
}

function settingsOf(past, version) {
  let now = new Map();
  for (const one of past.settings) {
    if (one.name !== 'settings' || one.valid_from > version) continue;
    const next = new Map();
    for (const [name, value] of Object.entries(one.value ?? {})) {
      const before = now.get(name);
      const same = before !== undefined && JSON.stringify(before.value) === JSON.stringify(value);
      next.set(name, same ? before : {value, since: one.valid_from});
    }
    now = next;
  }
  return [...now];
}

/** Returns, by its place, the row that was in its era's history before this one; undefined if it is the first. */
export function rowBefore(past, row) {
  return past.rows
    .get(row.era)
    ?.find((one) => one.position === row.position && one.valid_to === row.valid_from);
}

/** Returns the rows that a version removed and put nothing in the place of, in an era that goes on. */
export function removedAt(past, version) {
  const era = eraAt(past, version);
  const rows = past.rows.get(era) ?? [];
  const written = new Set(rows.filter((row) => row.valid_from === version).map((row) => row.position));
  return rows.filter((row) => row.valid_to === version && !written.has(row.position));
}

/** Returns the place of a message as addresses have it. */
export function placeOf(row) {
  return `${row.era}.${row.position}`;
}

/** Returns the past of an answer of `/history`. `era`: the only one that was asked for, null for all of them. */
export function pastOf(answer, era = null) {
  const rows = new Map();
  const eras = era === null ? [FIRST_ERA, ...answer.eras.map((one) => one.era)] : [era];
  for (const one of eras) rows.set(one, []);
  for (const row of answer.rows) rows.get(row.era)?.push(row);
  return {eras: answer.eras, rows, ...settingsIn(answer)};
}

/** Returns the settings of an answer; `hidden` stands for all of them if they may not be seen. */
function settingsIn({settings}) {
  return isRedacted(settings) ? {settings: [], hidden: settings} : {settings, hidden: null};
}

/**
 * Returns a past with what has changed behind a version, which is an answer of `/history?after=`. Rows that did not
 * change stay the same objects, and an era that is not here stays so.
 */
export function joined(past, answer, after) {
  const rows = new Map(past.rows);
  for (const {era, valid_from: began} of answer.eras) if (began > after && !rows.has(era)) rows.set(era, []);
  for (const [era, changed] of Map.groupBy(answer.rows, (row) => row.era)) {
    if (rows.has(era)) rows.set(era, merged(rows.get(era), changed));
  }
  const {settings, hidden} = settingsIn(answer);
  return {eras: answer.eras, rows, settings: withNewer(past.settings, settings), hidden};
}

/** Returns settings with those of an answer, which may have some of them again. */
function withNewer(known, newer) {
  if (newer.length === 0) return known;
  const has = new Set(known.map(({name, valid_from: since}) => `${since} ${name}`));
  const added = newer.filter(({name, valid_from: since}) => !has.has(`${since} ${name}`));
  const byName = (a, b) => (a.name < b.name ? -1 : Number(a.name > b.name));
  return [...known, ...added].sort((a, b) => byName(a, b) || a.valid_from - b.valid_from);
}

function merged(known, changed) {
  const byKey = new Map(known.map((row) => [keyOf(row), row]));
  for (const row of changed) {
    const before = byKey.get(keyOf(row));
    if (before === undefined || before.valid_to !== row.valid_to) byKey.set(keyOf(row), row);
  }
  return [...byKey.values()].sort((a, b) => a.position - b.position || a.valid_from - b.valid_from);
}

function keyOf(row) {
  return `${row.position}.${row.valid_from}`;
}
