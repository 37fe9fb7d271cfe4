select id as order_id, shop_id, customer_id, ordered_at, status
from {{ ref('raw_orders') }}
