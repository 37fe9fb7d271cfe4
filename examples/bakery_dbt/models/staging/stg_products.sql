with latest as (
    select *, row_number() over (partition by sku order by changed_at desc) as position
    from {{ ref('raw_products') }}
)
select sku, name as product, kind, {{ cents_to_price('price_cents') }} as price
from latest
where position = 1
