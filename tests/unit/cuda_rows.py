"""Rows of a toy matrix whose frameworks look for CUDA in the system, or bring it as wheels."""

ROWS = """\
pythons:
  - {version: "3.6", preference: 30, from: [{by: uv, glibc: "2.36", executable: /opt/python/bin/python3.6}]}
wheel_sets:
  - name: eleven
    cuda: "11.4"
    wheels:
      - {requirement: "vendor-runtime-cu11==11.4.1", folder: vendor/runtime/lib}
      - {requirement: "vendor-nvcc-cu11==11.4.2"}
    toolkit: {bin: vendor/nvcc/bin}
cuda:
  - version: "11.0"
    driver_min: "450.51.06"
    capabilities: {min: "3.5", max: "8.0"}
    providers:
      - provider: apt
        system: marble10
        repositories: [cuda-marble]
        packages: [{name: cuda-libraries-11-0, version: "11.0.3-1", repository: cuda-marble}]
        preference: 20
      - {provider: wheels, wheels: eleven, preference: 5}
  - version: "11.4"
    driver_min: "470.42.01"
    capabilities: {min: "3.5", max: "8.7"}
    providers:
      - {provider: tag, system: marble10, image: "cuda:11.4", cudnn: "8.0.5", preference: 10}
      - {provider: wheels, wheels: eleven, preference: 5}
cudnn:
  - version: "8.0.5"
    cuda: ["11"]
    apt: [{cuda: "11", system: marble10, name: libcudnn8, version: "8.0.5.39-1+cuda11.1", repository: cuda-marble}]
    wheels: [{cuda: "11", requirement: "vendor-cudnn-cu11==8.0.5.39", folder: vendor/cudnn/lib}]
  - version: "8.6.0"
    cuda: ["11"]
    capability_min: "5.0"
    wheels: [{cuda: "11", requirement: "vendor-cudnn-cu11==8.6.0.1", folder: vendor/cudnn/lib}]
framework: {name: anvil, title: Anvil, short: anvil, aliases: [anvil], recipe: anvil}
series:
  - series: "1.0"
    variants:
      gpu: {package: anvil, python: ["3.6"], cuda: "11.0", cuda_libraries: system, cudnn: {min: "8.0", below: "9"},
            glibc: "2.17", capabilities: {sass: ["3.5", "8.0"]}}
    releases:
      - {version: "1.0.0", released: "2020-03-13"}
  - series: "2.0"
    variants:
      gpu: {package: anvil, python: ["3.6", "3.11"], cuda: "11.4", cuda_libraries: system, cudnn: {min: "8.0", below: "9"},
            glibc: "2.17", capabilities: {sass: ["3.5", "8.0"]}}
    releases:
      - {version: "2.0.0", released: "2022-03-13"}
"""
BROUGHT = """\
framework: {name: bolt, title: Bolt, short: bolt, aliases: [bolt], recipe: bolt}
series:
  - series: "1.0"
    variants:
      gpu: {package: bolt, python: ["3.6"], cuda: "11.0", cuda_libraries: wheels, glibc: "2.17", capabilities: {sass: ["8.0"]}}
    releases:
      - {version: "1.0.0", released: "2020-03-13"}
"""
COMPILED = (
    'gpu: {package: anvil, python: ["3.6"]',
    'gpu: {repository: "https://example.org/anvil", revision: eeebdab16155d34ff8f5f42137da7df4d1c7eab0, nvcc: true, '
    'package: anvil, python: ["3.6"]',
)
