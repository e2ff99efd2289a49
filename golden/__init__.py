# SPDX-License-Identifier: Apache-2.0
"""Reference models: what every packet means, in vectorised NumPy, without a clock."""
