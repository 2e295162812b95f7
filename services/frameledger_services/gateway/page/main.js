/** The page: finds out who asks, then shows the list or a conversation. */

import {followLinks, useAddress} from './address.js';
import {onSignedOut, session as whoAsks} from './api.js';
import {Conversation} from './conversation.js';
import {html, render, useEffect, useState} from './html.js';
import {lazy} from './lazy.js';
import {List} from './list.js';
import {Failure, Shell} from './shell.js';
import {SignIn} from './sign_in.js';

const Work = lazy(() => import('./work.js'), 'Work');

function Page() {
  const address = useAddress();
  const [session, setSession] = useState(null);
  const [problem, setProblem] = useState(null);

  const begin = () => {
    setProblem(null);
    whoAsks().then(setSession, (found) => (found.status === 401 ? setSession(false) : setProblem(found)));
  };
  useEffect(begin, []);
  useEffect(() => onSignedOut(() => setSession(false)), []);

  if (problem !== null) return html`<${Shell}><${Failure} problem=${problem} again=${begin} /><//>`;
  if (session === null) return html`<${Shell}><main class="waiting"><h1>Frameledger</h1></main><//>`;
  if (session === false) return html`<${Shell}><${SignIn} done=${setSession} /><//>`;
  const end = () => setSession(false);
  return html`<${Shell} session=${session} end=${end}>
    ${address.screen === 'work'
      ? html`<${Work} />`
      : address.context === null
        ? html`<${List} session=${session} />`
        : html`<${Conversation} key=${address.context} id=${address.context} session=${session} />`}
  <//>`;
}

followLinks(document);
render(html`<${Page} />`, document.getElementById('page'));
