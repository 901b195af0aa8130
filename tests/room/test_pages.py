"""What a browser loads: one page for each role, once, and nothing from anywhere else."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from room_kit import PEOPLE, Pots, open_room

from llmsim_lab.errors import ConfigError
from llmsim_lab.room import Room

FRONT = Path(__file__).parents[2] / "llmsim_lab" / "room" / "front"


async def test_a_page_names_its_two_files_in_its_policy_and_they_are_kept() -> None:
    async with open_room(Pots(players=PEOPLE)) as here:
        browser = here.visitor()
        for path in ("", "teacher/", "projector/"):
            page = await browser.client.get(browser.base + path)
            script, style = re.findall(r'(?:src|href)="(/\w+/\w+\.(?:js|css))"', page.text)[::-1]
            policy = page.headers["content-security-policy"]
            host = browser.base.partition("//")[2].rstrip("/")
            assert f"script-src {host}{script};" in policy
            assert f"style-src {host}{style};" in policy
            assert "unsafe" not in policy
            for file in (script, style):
                reply = await browser.client.get(f"http://{host}{file}")
                assert reply.headers["cache-control"].endswith("immutable")
                assert reply.headers["content-encoding"] == "gzip"
                assert "import " not in re.sub(r"(?m)^\s*(//|\*).*", "", reply.text)
            tag = {"if-none-match": page.headers["etag"]}
            assert (await browser.client.get(browser.base + path, headers=tag)).status_code == 304


async def test_a_phone_loads_what_a_form_needs_and_no_more() -> None:
    async with open_room(Pots(players=PEOPLE)) as here:
        browser = here.visitor()
        page = (await browser.client.get(browser.base)).text
        host = browser.base.rstrip("/")
        files = re.findall(r'(?:src|href)="(/\w+/\w+\.(?:js|css))"', page)
        sent = [(await browser.client.get(host + file)).text for file in files]
        # With all that its script imports, and no more.
        assert 15_000 < sum(len(gzip.compress(text.encode())) for text in sent) < 25_000
        assert not any("big_chart" in text for text in sent)


async def test_a_class_has_its_own_language(tmp_path: Path) -> None:
    german = tmp_path / "deutsch.json"
    german.write_text('{"lang": "de", "join": "Mitmachen", "error_wrong_code": "Falscher Code."}')
    async with open_room(Pots(players=PEOPLE), words=german) as here:
        browser = here.visitor()
        page = (await browser.client.get(browser.base)).text
        assert '<html lang="de">' in page
        script = re.findall(r'src="(/\w+/guest\.js)"', page)[0]
        assert '"Mitmachen"' in (await browser.client.get(browser.base[:-1] + script)).text
        reply = await browser.post("join", {"code": "AAAAAA"})
        assert reply.json() == {"error": "wrong_code", "fault": "Falscher Code."}
    with pytest.raises(ConfigError, match=r"has 'joyn' \(did you mean 'join'\?\)"):
        Room(Pots(players=PEOPLE), words={"joyn": "Mitmachen"})
    Room(Pots(players=PEOPLE), words={"here_few": "{n} sind da"})
