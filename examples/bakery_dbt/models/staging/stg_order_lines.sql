select id as line_id, order_id, sku, quantity
from {{ ref('raw_order_lines') }}
