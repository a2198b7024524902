#!/bin/sh
# Runs in the last step of a build: makes every prefix of the image find packages that users add. Lists the installed files for
# `verify`.
#
# Next to this file is a folder for each prefix, with its pip, the file `prefix.pth`, and a file `site-packages` that holds the
# path to which `prefix.pth` is copied.
set -eu
here=/opt/envbuild/overlay
installed="${here}"

for folder in "${here}"/*/; do
  read -r site < "${folder}site-packages"
  cp "${folder}prefix.pth" "${site}/envbuild-overlay.pth"
  installed="${installed} ${site}/envbuild-overlay.pth"
done
install -m 0755 "${here}/pip.sh" /usr/local/bin/pip
ln -sf pip /usr/local/bin/pip3

mkdir -p /opt/envbuild/installed
{
  echo "folder ${here}"
  # shellcheck disable=SC2086 # one path per word
  find ${installed} -type f -print0 | sort -z | xargs -0 sha256sum
} > /opt/envbuild/installed/overlay
