"""Certificates and tokens of servers and clients."""

import ssl
from pathlib import Path

import trustme

from serving.middleware.settings import SecuritySettings

TOKEN, OTHER_TOKEN = "correct-horse-battery-staple", "0123456789abcdef"


class Files:
    """PEM files of a CA, a server and a client, and a token file, in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(self("ca.pem"))
        self.issue("server", self.ca.issue_cert("127.0.0.1", "localhost"))
        self.issue("client", self.ca.issue_cert("someone@example.org"))
        self.issue("stranger", trustme.CA().issue_cert("someone@example.org"))
        Path(self("tokens")).write_text(f"# of the tests\n\n{OTHER_TOKEN}\n  {TOKEN}  # mine\n")

    def __call__(self, name: str) -> str:
        return str(self.folder / name)

    def issue(self, name: str, certificate: trustme.LeafCert) -> None:
        certificate.private_key_pem.write_to_path(self(f"{name}.key"))
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        Path(self(f"{name}.pem")).write_bytes(chain)

    def settings(self, mutual: bool = True) -> SecuritySettings:
        client_ca = self("ca.pem") if mutual else None
        return SecuritySettings(self("server.pem"), self("server.key"), client_ca, self("tokens"))

    def context(self, client: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self("ca.pem"))
        if client is not None:
            context.load_cert_chain(self(f"{client}.pem"), self(f"{client}.key"))
        return context
