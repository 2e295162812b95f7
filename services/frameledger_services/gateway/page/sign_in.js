/** A token for a session: the cookie names it from then on, and the page keeps nothing of it. */

import {signIn} from './api.js';
import {html, useState} from './html.js';

/** @param {{done: (session: object) => void}} about called with who asks from now on */
export function SignIn({done}) {
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const send = (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get('token').trim();
    setBusy(true);
    signIn(token)
      .then(done, setProblem)
      .finally(() => setBusy(false));
  };
  return html`
    <main class="sign-in">
      <h1>Sign in</h1>
      <p>This gateway requires a token. Its operator creates one with <code>frameledger token new</code>.</p>
      <form onSubmit=${send}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required autofocus
          spellcheck=${false} aria-describedby="token-problem" />
        <button type="submit" disabled=${busy}>Sign in</button>
        <p id="token-problem" class="problem" role="alert">${problem && (problem.detail || problem.title)}</p>
      </form>
    </main>
  `;
}
