# SPDX-License-Identifier: Apache-2.0
"""Models of traffic and of time: what links carry, what overlaps with what, and what it brings."""
