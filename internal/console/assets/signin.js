// Signing in with the admin token, for a cookie.

import { post } from './api.js';
import { announce, h, patch } from './dom.js';

export function show(place, begin) {
  let problem = '';
  let busy = false;
  const draw = () =>
    patch(
      place,
      h('div', { class: 'title' }, h('h1', { tabindex: -1 }, 'Sign in')),
      h(
        'section',
        { class: 'narrow' },
        h(
          'form',
          { class: 'sign', onsubmit: submit },
          h(
            'label',
            {},
            'Admin token',
            h('input', {
              type: 'password',
              id: 'token',
              autocomplete: 'current-password',
              required: true,
              autofocus: true,
              'aria-describedby': 'where',
              'aria-invalid': problem ? 'true' : null,
            }),
          ),
          h(
            'p',
            { class: 'quiet small', id: 'where' },
            'The server was started with it: ',
            h('code', {}, '--admin-token'),
            ', or the variable ',
            h('code', {}, 'EVENKEEL_ADMIN_TOKEN'),
            '. You stay signed in for 12 hours at most.',
          ),
          problem ? h('p', { class: 'problem', role: 'alert' }, problem) : null,
          h('div', {}, h('button', { class: 'main', disabled: busy }, busy ? 'Signing in …' : 'Sign in')),
        ),
      ),
    );

  async function submit(event) {
    event.preventDefault();
    const token = document.getElementById('token').value;
    busy = true;
    draw();
    try {
      await begin(await post('/v1/session', { token }));
    } catch (e) {
      busy = false;
      problem =
        e.status === 401
          ? 'This is not the token of this server. Copy it again from where the server was started.'
          : e.status === 429
            ? 'Too many attempts have failed just now. Wait a second, and try again.'
            : e.message;
      draw();
      announce(problem);
      document.getElementById('token').select();
    }
  }

  draw();
  document.getElementById('token').focus();
}
