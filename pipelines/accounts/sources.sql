-- Both tables share a slot, so an epoch contains a transfer with both of its changed balances.
CREATE SOURCE accounts (id bigint, branch string, balance decimal(12,2), PRIMARY KEY (id))
  USING postgres OPTIONS (table 'public.accounts', slot 'tussock_accounts');

CREATE SOURCE transfers (id bigint, giver bigint, taker bigint, amount decimal(12,2), at timestamp,
                         PRIMARY KEY (id))
  USING postgres OPTIONS (table 'public.transfers', slot 'tussock_accounts');
