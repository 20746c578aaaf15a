"""What tests of the command line share."""

from __future__ import annotations

import pytest

from cli_tools import Data, make_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Files of ratings and a model, which no test changes."""
    return make_data(tmp_path_factory.mktemp("cli"))
