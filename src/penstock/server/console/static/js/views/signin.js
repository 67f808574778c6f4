// Asks for a token, or a name and a password.
import { html, useState } from "../lib.js";
import { basic, bearer, signIn } from "../session.js";
import { Field, Form } from "../ui.js";

export function SignIn({ reason }) {
  const [kind, set] = useState("token");
  const submit = ({ token, name, password, keep }) => signIn(kind === "token" ? bearer(token) : basic(name, password), keep === "on");
  return html`
    <section class="card narrow">
      <h1>Sign in</h1>
      ${reason && html`<p class="problem" role="alert">${reason}</p>`}
      <fieldset class="choice"><legend>Sign in with</legend>
        <label><input type="radio" name="kind" checked=${kind === "token"} onChange=${() => set("token")} /> a token</label>
        <label><input type="radio" name="kind" checked=${kind === "password"} onChange=${() => set("password")} /> a name and password</label>
      </fieldset>
      <${Form} submit="Sign in" action=${submit}>
        ${kind === "token"
          ? html`<${Field} label="Token"><input name="token" type="password" required autocomplete="off" /></${Field}>`
          : html`<${Field} label="Name"><input name="name" required autocomplete="username" /></${Field}>
                 <${Field} label="Password"><input name="password" type="password" required autocomplete="current-password" /></${Field}>`}
        <label class="check"><input type="checkbox" name="keep" /> Keep me signed in on this computer</label>
        <p class="dim">Otherwise the credentials are forgotten when the tab is closed.</p>
      </${Form}>
    </section>`;
}
