{{ config(materialized='ephemeral') }}
select l.line_id, l.order_id, p.sku, p.kind, l.quantity, l.quantity * p.price as amount
from {{ ref('stg_order_lines') }} l
join {{ ref('stg_products') }} p on p.sku = l.sku
