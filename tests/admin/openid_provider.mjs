// A certified OpenID provider (npm's oidc-provider) on loopback, with one client and what it hears.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { Provider } from "oidc-provider";

const { BASE, CLIENT, SECRET, SESSION } = process.env;
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const server = createServer();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT,
        client_secret: SECRET,
        redirect_uris: [`${BASE}/sign-in/openid/back`],
        post_logout_redirect_uris: [`${BASE}/sign-in`],
        backchannel_logout_uri: `${BASE}/sign-out/openid`,
        backchannel_logout_session_required: SESSION === "yes",
      },
    ],
    cookies: { keys: [SECRET] },
    features: { backchannelLogout: { enabled: true } },
    // Its guard against special addresses keeps it from loopback, where all of this is.
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id, name: id }) }),
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "first", use: "sig" }] },
  });
  provider.on("backchannel.success", (_, __, account) => say({ told: account }));
  provider.on("backchannel.error", (_, error) => say({ refused: error.message }));
  provider.on("server_error", (_, error) => say({ failed: String(error.stack) }));
  provider.on("end_session.error", (_, error) => say({ wrong: String(error.error_description) }));
  server.on("request", provider.callback());
  say({ issuer });
});
