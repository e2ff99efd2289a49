# SPDX-License-Identifier: Apache-2.0
"""Tests of generation, the command line and traces."""
