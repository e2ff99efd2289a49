# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import asdict

import pytest
from dysharp.gen.json_text import json_text
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.synth.report import write_report


def test_members_of_enumerations_are_told_by_name():
    text = json_text(asdict(GPU_PRESETS["default"]))
    assert text.endswith("}\n")
    assert json.loads(text)["tlb_form"] == "CAM"


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError, match=r"^`value` must be plain data, not \{1\}$"):
        json_text({"a": {1}})


def test_area_reports_take_the_parameters_of_every_top(tmp_path):
    path = tmp_path / "deep" / "report.json"
    write_report(path, {"parameters": asdict(GPU_PRESETS["tiny"])})
    assert json.loads(path.read_text())["parameters"]["tlb_form"] == "CAM"
