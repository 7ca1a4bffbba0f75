#!/bin/sh
# sftp-server USER:PASSWORD:UID:GID:DIRECTORY: an SFTP server for one user, confined to a home directory that has this directory.
# Its host keys are /etc/ssh/ssh_host_ed25519_key and /etc/ssh/ssh_host_rsa_key, which are mounted.
set -eu
IFS=: read -r user password uid gid directory <<WORDS
$1
WORDS
printf '%s:x:%s:%s::/home/%s:/bin/sh\n' "$user" "${uid:-1001}" "${gid:-1001}" "$user" >>/etc/passwd
printf '%s:%s:19000:0:99999:7:::\n' "$user" "$(mkpasswd -m sha512 "$password")" >>/etc/shadow
mkdir -p "/home/$user/$directory"
chown "${uid:-1001}:${gid:-1001}" "/home/$user/$directory"
exec /usr/sbin/sshd -D -e
